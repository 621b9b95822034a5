import ArgumentParser
import Plimsoll
import PlimsollDemos
import PlimsollService

/// Options of all commands that connect to a running service.
struct AdminOptions: ParsableArguments {
    @Option(
        help: "Admin socket of the service. (default: $PLIMSOLL_SOCKET, else the only one in the usual directories)",
        completion: .file())
    var socket: String?
    @Flag(help: "Print the service's answer, a line of JSON.") var json = false

    func connect() throws -> AdminClient { try Self.connect(to: socket) }

    static func connect(to socket: String?) throws -> AdminClient {
        let path = try socket ?? AdminSockets().choose()
        do throws(AdminError) { return try AdminClient(path: path) } catch { throw Self.failure(error) }
    }

    /// Sends a request. Prints the result of `text`, or the raw answer with `--json`.
    func ask(_ request: AdminRequest, _ text: (AdminAnswer) -> String) throws {
        try reportingFailure {
            let client = try connect()
            let (line, answer) = try Self.failing { () throws(AdminError) in
                let line = try client.line(for: request)
                return (line, try client.decode(line))
            }
            if json { Output.line(line) }
            try Self.check(answer, isPrinted: json)
            if !json { Output.line(text(answer)) }
        }
    }

    /// Throws a failure if the answer is an error.
    ///
    /// - Parameter isPrinted: true if the answer was already printed; the error is then not printed again.
    static func check(_ answer: AdminAnswer, isPrinted: Bool = false) throws {
        guard !answer.ok else { return }
        let reason = printable(answer.error ?? "the service gave no reason")
        let isUnavailable = [AdminAnswer.Code.readOnly, .forbidden, .busy].contains { $0.rawValue == answer.code }
        if isPrinted { throw isUnavailable ? ExitCode(69) : ExitCode.failure }
        throw isUnavailable ? Failure.unavailable(reason) : Failure.failed(reason)
    }

    static func failing<Result>(_ body: () throws(AdminError) -> Result) throws -> Result {
        do throws(AdminError) { return try body() } catch { throw failure(error) }
    }

    private static func failure(_ error: AdminError) -> Failure { .unavailable(printable(error.description)) }
}

/// A time with a unit, as users write it: `500ms`, `5s`, `2m`.
struct Span: ExpressibleByArgument {
    let seconds: Double

    init?(argument: String) {
        let units: [(String, Double)] = [("ms", 0.001), ("s", 1), ("m", 60)]
        for (unit, factor) in units where argument.hasSuffix(unit) {
            guard let number = Double(argument.dropLast(unit.count)), number.isFinite, number > 0 else { return nil }
            seconds = number * factor
            return
        }
        return nil
    }
}
