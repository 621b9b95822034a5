import ArgumentParser
import CSystemCallKiller
import Foundation
import Glibc
import Plimsoll
import PlimsollDemos

/// A process that attacks a supervisor, as an unprivileged user.
struct HostileCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_hostile", abstract: "Part of `plimsoll-bench hostile`.", shouldDisplay: false)

    enum Deed: String, ExpressibleByArgument {
        /// Passes connections that take 12 s to close.
        case descriptor
        /// Writes to all sockets and connects to them, as fast as possible.
        case flood
        /// Attack by a unit: names an invalid main process, again and again.
        case complain
        /// Harmless behaviour of a unit: reports ready, again and again.
        case ready
    }

    @Argument var deed: Deed
    @Option(help: "Directory of the supervisor.") var directory = ""
    @Option(help: "Maximum number of seconds.") var seconds = 20.0

    func run() throws {
        try reportingFailure {
            // List before dropping privileges: an unprivileged process may know the names as well, but may not list
            // the directory.
            let sockets = sockets
            let isNobody =
                deed == .ready || setgroups(0, nil) == 0 && setgid(Self.nobody) == 0 && setuid(Self.nobody) == 0
            guard isNobody else {
                throw Failure.unavailable(
                    "cannot become another user: \(String(cString: strerror(errno))); run as root")
            }
            let end = SteadyClock.now + .seconds(seconds)
            // A unit's standard input is empty, and the supervisor ends the unit.
            if deed == .descriptor || deed == .flood {
                PlainThread {
                    while readLine() != nil {}
                    Glibc.exit(0)
                }?.detach()
            }
            switch deed {
            case .descriptor: try handOver(to: sockets, until: end)
            case .flood: flood(sockets, until: end)
            case .complain: repeatedly("MAINPID=1\n", 64, until: end)
            case .ready: repeatedly("READY=1\n", 1, until: end)
            }
        }
    }

    /// Sockets of the supervisor and its units.
    private var sockets: [String] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
        return names.filter { $0 == "supervisor" || $0.hasSuffix(".pressure") || $0.hasSuffix("notify") }.map {
            directory + "/" + $0
        }
    }

    /// The user `nobody`.
    static let nobody: uid_t = 65534

    // MARK: - Descriptors

    /// Passes one descriptor by a datagram and one by a connection, and closes the local copies at once. If the
    /// receiver has been stopped meanwhile, its close is the last one.
    private func handOver(to paths: [String], until end: Duration) throws {
        let datagrams = hostile_datagrams()
        let lingering = try paths.map { _ in try Lingering() }
        // Some sockets refuse this user: one success is enough.
        let results = zip(paths, lingering).map { path, one -> Int32 in
            if path.hasSuffix("notify") { return hostile_send(datagrams, path, "STATUS=here\n", one.file) }
            let stream = hostile_connect(path)
            return stream < 0 ? stream : hostile_send(stream, nil, "x", one.file)
        }
        guard results.contains(0) else {
            throw Failure.failed(
                "no socket in \(directory) takes a descriptor: \(String(cString: strerror(-(results.first ?? -ENOENT))))"
            )
        }
        for one in lingering { close(one.file) }
        Output.line("sent")
        SteadyClock.sleep(until: end)
        withExtendedLifetime(lingering) {}
    }

    // MARK: - Floods

    private func flood(_ sockets: [String], until end: Duration) {
        let file = hostile_datagrams()
        let streams = sockets.filter { !$0.hasSuffix("notify") }, datagrams = sockets.filter { $0.hasSuffix("notify") }
        let text = "WATCHDOG=1\nSTATUS=\(String(repeating: "x", count: 200))\n"
        Output.line("sent")
        while SteadyClock.now < end {
            for path in datagrams { for _ in 0..<64 { _ = hostile_send(file, path, text, -1) } }
            for path in streams {
                let connection = hostile_connect(path)
                guard connection >= 0 else { continue }
                _ = hostile_send(connection, nil, "x\n", -1)
                close(connection)
            }
        }
    }

    // MARK: - Units

    private func repeatedly(_ text: String, _ count: Int, until end: Duration) {
        guard let socket = getenv("NOTIFY_SOCKET").map({ String(cString: $0) }) else { return }
        let file = hostile_datagrams()
        while SteadyClock.now < end {
            for _ in 0..<count { _ = hostile_send(file, socket, text, -1) }
            SteadyClock.sleep(.milliseconds(count == 1 ? 50 : 1))
        }
        SteadyClock.sleep(.seconds(600))
    }
}

/// A connection over the loopback with unsent data and a peer that never reads: the last `close` blocks for 12 s.
private final class Lingering {
    /// The connection's descriptor, closed by the user of this object.
    let file: Int32
    private let peer: Int32

    init() throws {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        defer { close(listener) }
        file = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let client = file
        let isConnected = withUnsafeMutablePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(listener, $0, length) == 0 && listen(listener, 1) == 0 && getsockname(listener, $0, &length) == 0
                    && connect(client, $0, length) == 0
            }
        }
        peer = isConnected ? accept(listener, nil, nil) : -1
        guard peer >= 0 else {
            throw Failure.failed("cannot connect over the loopback: \(String(cString: strerror(errno)))")
        }
        let bytes = [UInt8](repeating: 0, count: 65536)
        while Glibc.send(file, bytes, bytes.count, Int32(MSG_DONTWAIT)) > 0 {}
        var lingering = linger(l_onoff: 1, l_linger: 12)
        setsockopt(file, SOL_SOCKET, SO_LINGER, &lingering, socklen_t(MemoryLayout<linger>.size))
    }

    deinit { close(peer) }
}
