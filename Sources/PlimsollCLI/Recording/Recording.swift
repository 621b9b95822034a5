import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollLinux

/// Readings in a file: a header that identifies the format, then one JSON object a line.
struct Recording {
    var header: Header
    var readings: [PressureReading]
    /// The caches of a service, if they were recorded.
    var caches: [CachesRecord] = []
    /// Position and reason if reading stopped before the end of the file; `nil` otherwise.
    var problem: Problem?

    /// The first line: facts about the host that explain the numbers, none of which names the host.
    struct Header: Codable, Equatable {
        /// Version of the format: readers refuse versions newer than they know.
        var plimsollRecording: Int
        var kernel: String
        var processors: Int
        var support: String
        var liveSignals: [String]

        static let newest = 2

        /// Returns the header for this host. Only recordings with caches are of the newer version.
        static func here(_ capabilities: Capabilities, hasCaches: Bool = false) -> Header {
            var host = utsname()
            uname(&host)
            let release = withUnsafeBytes(of: host.release) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
            // Digits and dots only: suffixes by distributions may name a customer or a machine.
            let kernel = String(release.prefix { $0.isNumber || $0 == "." })
            return Header(
                plimsollRecording: hasCaches ? newest : 1, kernel: kernel,
                processors: max(1, Int(sysconf(Int32(_SC_NPROCESSORS_ONLN)))),
                support: capabilities.support.rawValue, liveSignals: capabilities.signals.filter(\.isLive).map(\.name))
        }
    }

    /// An invalid line.
    struct Problem: Error, Equatable, CustomStringConvertible {
        /// Line number, counted from 1 as in editors.
        var line: Int
        var reason: String
        var description: String { "line \(line): \(reason)" }
    }

    /// Reads the valid beginning of a recording.
    ///
    /// - Throws: `Problem` if there is no valid header.
    init(parsing text: String) throws(Problem) {
        // The text after the last newline is empty, or a line that was being written when the recorder died.
        var lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        let tail = lines.removeLast()
        guard let first = lines.first else {
            throw Problem(line: 1, reason: text.isEmpty ? "the file is empty" : "truncated within the header")
        }
        do {
            header = try JSONLine.decode(Header.self, from: first)
        } catch {
            throw Problem(line: 1, reason: "not the header of a recording: \(explain(error))")
        }
        guard header.plimsollRecording <= Header.newest, header.plimsollRecording > 0 else {
            throw Problem(
                line: 1,
                reason: "version \(header.plimsollRecording) of the format; this program reads up to \(Header.newest)")
        }
        readings = []
        for (index, line) in lines.enumerated().dropFirst() {
            do {
                if header.plimsollRecording > 1, let record = try Self.caches(line) {
                    caches.append(record)
                } else {
                    readings.append(try Self.reading(line, after: readings.last))
                }
            } catch {
                problem = Problem(line: index + 1, reason: error.description)
                return
            }
        }
        if !tail.isEmpty {
            problem = Problem(line: lines.count + 1, reason: "truncated: the file does not end with a newline")
        }
    }

    /// Reads the valid beginning of the file at `path`.
    ///
    /// - Throws: `Failure` if the file cannot be read, or has no valid header.
    init(file path: String) throws {
        guard let text = ControlFile.text(path) else { throw Failure.failed("cannot read \(printable(path))") }
        do { self = try Recording(parsing: text) } catch { throw Failure.failed("\(printable(path)), \(error)") }
    }

    private struct Reason: Error { var description: String }

    /// Returns the record of caches in a line; `nil` for another kind of line.
    private static func caches(_ line: Substring) throws(Reason) -> CachesRecord? {
        struct Kind: Decodable { var liveBytes: Int? }
        guard (try? JSONLine.decode(Kind.self, from: line))?.liveBytes != nil else { return nil }
        let record: CachesRecord
        do { record = try JSONLine.decode(CachesRecord.self, from: line) } catch {
            throw Reason(description: explain(error))
        }
        if let problem = record.problem { throw Reason(description: problem) }
        return record
    }

    private static func reading(_ line: Substring, after previous: PressureReading?) throws(Reason) -> PressureReading {
        if line.isEmpty { throw Reason(description: "the line is empty") }
        let record: ReadingRecord
        do {
            record = try JSONLine.decode(ReadingRecord.self, from: line)
        } catch {
            throw Reason(description: explain(error))
        }
        if let problem = record.problem { throw Reason(description: problem) }
        let reading = record.reading
        if let previous, reading.at < previous.at {
            throw Reason(description: "the time is earlier than in the line before")
        }
        return reading
    }
}

/// Returns a decoding error as one plain clause.
private func explain(_ error: any Error) -> String {
    switch error {
    case DecodingError.keyNotFound(let key, _): "\(key.stringValue) is missing"
    case DecodingError.typeMismatch(_, let context), DecodingError.valueNotFound(_, let context):
        "\(context.codingPath.last?.stringValue ?? "the value") is not of the right type"
    case DecodingError.dataCorrupted(let context) where !context.codingPath.isEmpty:
        "\(context.codingPath.last?.stringValue ?? "the value") has a value that is not allowed"
    default: "not a JSON object"
    }
}

/// Readings of the real source at the pace of a display, until a time limit or a signal.
struct LiveReadings {
    private let source = LinuxPressureSource()
    private let began = SteadyClock.now

    var capabilities: Capabilities { source.capabilities }

    /// Calls `body` with each reading, stamped from zero. Stops when `limit` is over, a signal comes or `body`
    /// returns false.
    ///
    /// - Throws: `Failure` if nothing can be read.
    func forEach(every step: Duration, atMost limit: Duration?, _ body: (PressureReading) -> Bool) throws {
        let signals = SignalQueue(SignalQueue.endings)
        while true {
            let now = SteadyClock.now - began
            if let limit, now >= limit { return }
            let reading: PressureReading
            do {
                reading = try source.read(at: now)
            } catch {
                throw Failure.unavailable(
                    "cannot read memory pressure: \(error); run `plimsoll doctor` for the reasons")
            }
            guard body(reading) else { return }
            // Wait for the signal, not in the source: Ctrl-C takes effect at once, and the display keeps a fixed
            // pace. Events of the source are only drained.
            defer { source.wait(atMost: .zero) }
            if signals.next(within: limit.map { min(step, max(.zero, $0 - now)) } ?? step) != nil { return }
        }
    }
}
