import Foundation
import Glibc
import Plimsoll
import PlimsollDemos

/// Measures the time until a killed service is back, while another process attacks the supervisor. Each run has a
/// separate supervisor, started with the command `supervise`.
struct HostileBench {
    enum Harm: String, CaseIterable {
        /// A connection that takes 12 s to close was passed to the supervisor.
        case descriptor
        /// Standard error and the journal are pipes without a reader, and a unit provokes error messages.
        case log
        /// Two other processes flood the supervisor's sockets.
        case flood
    }

    /// Time that counts for a service that is not back by then.
    static let most = Duration.seconds(20)

    /// Returns the time of each run until the service was back.
    func measure(_ harm: Harm, runs: Int) throws -> [Duration] {
        try (1...runs).map { number in
            try ScratchDirectory.with("h\(number)") { try HostileRun(harm: harm, directory: $0).play() }
        }
    }
}

/// One supervisor, one killed service.
private struct HostileRun {
    let harm: HostileBench.Harm
    let directory: String
    private var prefix: String { "hostile-\(getpid())" }
    private var program: String { (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? "" }

    func play() throws -> Duration {
        // Other users may traverse the directory, as in a real supervisor's directory.
        chmod(directory, 0o711)
        try File.write(units, to: directory + "/units.yaml")
        let pipes = try [FullPipe(directory + "/errors"), FullPipe(directory + "/journal")]
        let group = harm == .log ? try GroupMaker().make("hostile", limit: Self.limit) : nil
        let supervisor = try start(in: group)
        var others: [ChildProcess] = []
        defer {
            for other in others { other.end(within: .zero) }
            // A write that waits for a reader must not keep the supervisor from ending.
            for pipe in pipes { pipe.drain() }
            supervisor.signal(SIGTERM)
            let end = SteadyClock.now + .seconds(20)
            while supervisor.poll() == nil, SteadyClock.now < end {
                for pipe in pipes { pipe.drain() }
                SteadyClock.sleep(.milliseconds(5))
            }
            supervisor.end(within: .zero)
            clear(group)
        }
        try waitFor("the service has not started") { !starts.isEmpty }
        // Let the supervisor become idle.
        SteadyClock.sleep(.milliseconds(300))
        try doHarm(to: supervisor, &others)
        let (killed, count) = (starts.last ?? 0, starts.count)
        kill(killed, SIGKILL)
        let begin = SteadyClock.now
        while starts.count == count, SteadyClock.now < begin + HostileBench.most {
            SteadyClock.sleep(.microseconds(500))
        }
        let took = SteadyClock.now - begin
        if harm == .log {
            // Verify the obstruction: the supervisor had more to write than fitted.
            for pipe in pipes { pipe.drain() }
            try waitFor("no data was written to the pipe without a reader") { pipes.allSatisfy(\.hasMore) }
        }
        return min(took, HostileBench.most)
    }

    private func doHarm(to supervisor: ChildProcess, _ others: inout [ChildProcess]) throws {
        switch harm {
        case .descriptor:
            // A stopped supervisor receives the connection after the sender's close. The supervisor's close is then the
            // last one, and blocks.
            supervisor.signal(SIGSTOP)
            defer { supervisor.signal(SIGCONT) }
            others.append(try hostile(["descriptor"]))
        case .flood: for _ in 0..<2 { others.append(try hostile(["flood"])) }
        // The supervisor's own units do this harm; they have begun by now.
        case .log: SteadyClock.sleep(.seconds(3))
        }
    }

    private func hostile(_ arguments: [String]) throws -> ChildProcess {
        let child = try ChildProcess(
            ChildProcess.itself, ["plimsoll-bench", "_hostile"] + arguments + ["--directory", directory],
            readsOutput: true,
            endsWithParent: true)
        do {
            try waitFor("a hostile process has not started") { child.output?.lines().contains("sent") ?? false }
        } catch {
            child.end(within: .zero)
            throw error
        }
        return child
    }

    private func start(in group: LimitedGroup?) throws -> ChildProcess {
        let streams = harm == .log ? "2>\(directory)/errors >/dev/null" : ">/dev/null 2>&1"
        let audit = harm == .log ? "journal" : "audit"
        let arguments = [
            "sh", "-c", "exec \"$0\" \"$@\" \(streams)", program, "supervise", directory + "/units.yaml", "--directory",
            directory, "--prefix",
            prefix,
            "--audit", "\(directory)/\(audit)", "--own-leaf",
        ]
        return if let group { try group.start("/bin/sh", arguments) } else { try ChildProcess("/bin/sh", arguments) }
    }

    private var units: String {
        var units = """
            version: 1
            policy: {leaveTime: 100ms, grace: 1s}
            units:
              service: {command: [/bin/sh, -c, 'echo $$ >> \(directory)/starts; exec sleep 300'], importance: 900, restart: always}

            """
        if harm == .log {
            // One unit that provokes errors, and one that allocates nearly all memory, so that decisions go to the
            // journal.
            units +=
                "  complainer: {command: [\(program), _hostile, complain, --seconds, '15'], importance: 800, restart: never}\n"
            units += """
                  hog:
                    command: [\(program), _unit, --name, hog, --directory, \(directory), --size, '\(Self.taken.bytes)']
                    role: background
                    importance: 100
                    restart: never

                """
        }
        return units
    }

    private static let limit = ByteCount.mebibytes(384), taken = ByteCount.mebibytes(330)

    private var starts: [Int32] {
        (ControlFile.text(directory + "/starts") ?? "").split(separator: "\n").compactMap { Int32($0) }
    }

    private func waitFor(_ what: String, _ condition: () -> Bool) throws {
        let deadline = SteadyClock.now + .seconds(20)
        while !condition() {
            guard SteadyClock.now < deadline else { throw Failure.failed("\(harm.rawValue): \(what)") }
            SteadyClock.sleep(.milliseconds(1))
        }
    }

    private func clear(_ group: LimitedGroup?) {
        let fleet = FleetGroups(prefix: prefix, directory: directory)
        fleet.clear()
        guard let group else { return }
        for directory in group.directories {
            for name in ((try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? [])
            where name.hasPrefix(prefix) {
                let path = directory + "/" + name
                for pid in (ControlFile.text(path + "/cgroup.procs") ?? "").split(separator: "\n").compactMap({
                    Int32($0)
                }) { kill(pid, SIGKILL) }
                let deadline = SteadyClock.now + .seconds(2)
                while rmdir(path) != 0, errno == EBUSY, SteadyClock.now < deadline {
                    SteadyClock.sleep(.milliseconds(5))
                }
            }
        }
        if !group.remove() { Output.problem("cannot remove \(group.memory)") }
    }
}

/// A named pipe that is full from the beginning.
private final class FullPipe {
    private let file: Int32
    private var filled = 0
    private var drained = 0

    init(_ path: String) throws {
        guard mkfifo(path, 0o600) == 0 else {
            throw Failure.failed("cannot use \(path): \(String(cString: strerror(errno)))")
        }
        // Open both ends, so that a writer's open does not block.
        file = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC)
        let bytes = [UInt8](repeating: UInt8(ascii: "\n"), count: 4096)
        while true {
            let count = write(file, bytes, bytes.count)
            guard count > 0 else { break }
            filled += count
        }
    }

    deinit { close(file) }

    /// Returns true if another process wrote, or waited to write, more than first fitted.
    var hasMore: Bool {
        drain()
        return drained > filled
    }

    func drain() {
        var bytes = [UInt8](repeating: 0, count: 65536)
        while true {
            let count = read(file, &bytes, bytes.count)
            guard count > 0 else { return }
            drained += count
        }
    }
}
