import Foundation
import Glibc

/// One service in a separate process, in a group with a limit.
final class Server {
    let port: Int
    let process: Int32
    private let runner = Process()
    private let errors = Pipe()

    /// - Parameters:
    ///   - plimsoll: the command `plimsoll`.
    ///   - limit: limit of the group; `nil` for no group.
    convenience init(_ budgets: Budgets, mebibytes: Int = 32, plimsoll: String, limit: String?) throws {
        let serve = [CommandLine.arguments[0], "serve", "--budgets", budgets.rawValue, "--mebibytes", "\(mebibytes)"]
        try self.init(limit.map { [plimsoll, "run", "--json", "--memory-max", $0, "--"] + serve } ?? serve)
    }

    /// Starts a service that prints a port and a PID once listening.
    init(_ command: [String]) throws {
        let output = Pipe()
        runner.executableURL = URL(fileURLWithPath: command[0])
        runner.arguments = Array(command.dropFirst())
        (runner.standardOutput, runner.standardError) = (output, errors)
        try runner.run()
        var text = ""
        while !text.contains("\n") {
            let data = output.fileHandleForReading.availableData
            guard !data.isEmpty else {
                throw Failure(
                    "the service did not start: \(String(decoding: errors.fileHandleForReading.availableData, as: UTF8.self))"
                )
            }
            text += String(decoding: data, as: UTF8.self)
        }
        let words = text.split(separator: "\n")[0].split(separator: " ")
        guard words.count == 3, let port = Int(words[1]), let process = Int32(words[2]) else {
            throw Failure("the service said \(text)")
        }
        (self.port, self.process) = (port, process)
    }

    /// Ends the service, and returns true if the kernel had killed it.
    func end() -> Bool {
        kill(process, SIGTERM)
        runner.waitUntilExit()
        let text = String(decoding: errors.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        struct Report: Decodable { var oomKills: Int }
        let report = text.split(separator: "\n").last { $0.hasPrefix("{") }.flatMap {
            try? JSONDecoder().decode(Report.self, from: Data($0.utf8))
        }
        return (report?.oomKills ?? 0) > 0
    }

    /// The resident set in MiB; 0 once the process is gone.
    var resident: Int {
        let file = open("/proc/\(process)/statm", O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return 0 }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: 256)
        let text = String(decoding: bytes[..<max(0, read(file, &bytes, bytes.count))], as: UTF8.self)
        return (text.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0) / 256
    }
}

/// A connection that asks one request at a time.
final class Client {
    private let socket: Int32
    private var buffer = [UInt8](repeating: 0, count: 64 << 10)

    init?(port: Int) {
        socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(UInt16(port).bigEndian)
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        let isConnected = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(socket, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
            }
        }
        var limit = timeval(tv_sec: 30, tv_usec: 0)
        setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
        if !isConnected {
            close(socket)
            return nil
        }
    }

    deinit { close(socket) }

    /// Returns the status of the answer; 0 if the connection was closed or 30 s passed.
    func get(_ path: String) -> Int {
        let request = Array("GET \(path) HTTP/1.1\r\nHost: localhost\r\n\r\n".utf8)
        guard send(socket, request, request.count, Int32(MSG_NOSIGNAL)) == request.count else { return 0 }
        var answer: [UInt8] = []
        while true {
            let count = recv(socket, &buffer, buffer.count, 0)
            guard count > 0 else { return 0 }
            answer += buffer[..<count]
            let text = String(decoding: answer, as: UTF8.self)
            guard let end = text.range(of: "\r\n\r\n") else { continue }
            let head = text[..<end.lowerBound].lowercased()
            let length =
                head.split(separator: "\r\n").first { $0.hasPrefix("content-length:") }
                .flatMap { Int($0.dropFirst("content-length:".count).trimmingCharacters(in: .whitespaces)) } ?? 0
            guard text[end.upperBound...].utf8.count >= length else { continue }
            return Int(head.dropFirst("http/1.1 ".count).prefix(3)) ?? 0
        }
    }
}
