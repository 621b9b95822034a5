import Foundation
import Glibc

/// Runs one variant under one load at a time: the server in a separate group with a limit, the load in another process.
public struct Runner {
    /// The paths of this program, of the `plimsoll` command, and of `libjemalloc.so.2` if installed.
    public var program: String
    public var plimsoll: String
    public var jemalloc: String?

    private static let startTime = 15.0
    private static let endTime = 30.0

    public init(program: String, plimsoll: String, jemalloc: String?) {
        self.program = program
        self.plimsoll = plimsoll
        self.jemalloc = jemalloc
    }

    /// Checks that a group with a limit can be made here, which every run needs.
    public func check() throws {
        try inDirectory { directory in
            let child = try Child("check", [plimsoll, "run", "--memory-max", "64M", "--", "/bin/true"], in: directory)
            guard child.wait(seconds: Self.startTime), child.status == 0 else {
                throw RunProblem(
                    "cannot compare because `\(plimsoll) run --memory-max 64M -- /bin/true` failed: \(child.errors)")
            }
        }
    }

    /// Makes the run that `plan` describes, and returns the plan with the outcome.
    public func run(_ plan: RunRecord) throws -> RunRecord { try inDirectory { try run(plan, in: $0) } }

    private func run(_ plan: RunRecord, in directory: URL) throws -> RunRecord {
        var record = plan
        let server = try Child("server", try serverCommand(plan), in: directory)
        guard let (port, id) = listening(server) else {
            record.problem = "cannot load the server because it did not listen: \(server.errors.suffix(500))"
            try end(server, nil)
            return record
        }
        let load = try Child("load", loadCommand(plan, port), in: directory)
        var watch = ServerWatch(id)
        let began = Date(), busyBefore = ProcessorTime.busy
        let isDone = load.wait(seconds: plan.warmUp + plan.seconds + 60) {
            if Interruption.isAsked { load.signal(SIGTERM) }
            watch.poll()
        }
        if !isDone {
            record.problem = "the load did not end"
            load.signal(SIGKILL)
        }
        if Interruption.isAsked {
            try end(server, id)
            throw RunProblem(
                "interrupted by \(Interruption.description); the runs before are kept, and `compare` with the same options goes on from there"
            )
        }
        record.meanResidentBytes = watch.mean
        record.peakResidentBytes = watch.peak
        record.goneAfterSeconds = watch.goneAfter.map { $0 - plan.warmUp }
        record.result = lastLine(load.output)
        let passed = Date().timeIntervalSince(began)
        record.processors = watch.processorSeconds / passed
        record.neighbours = ProcessorTime.busy.flatMap { after in
            busyBefore.map {
                max(0, (after - $0 - watch.processorSeconds - (record.result?.processorSeconds ?? 0)) / passed)
            }
        }
        if record.result == nil, record.problem == nil { record.problem = "the load said: \(load.errors.suffix(500))" }

        try end(server, id)
        record.server = lastLine(server.output)
        if let group: GroupReport = lastLine(server.errors) {
            record.oomKills = group.oomKills
            record.groupPeakBytes = group.peakBytes
        }
        return record
    }

    /// Gives `body` a directory for outputs, which is removed after.
    private func inDirectory<Result>(_ body: (URL) throws -> Result) throws -> Result {
        let directory = FileManager.default.temporaryDirectory.appendingPathComponent(
            "e2e-\(getpid())-\(UInt32.random(in: 0 ... .max))")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        return try body(directory)
    }

    private func serverCommand(_ plan: RunRecord) throws -> [String] {
        var command = [program, "serve", "--variant", plan.variant, "--limit", "\(plan.limitBytes)", "--port", "0"]
        if plan.variant.hasPrefix("jemalloc") {
            guard let jemalloc else {
                throw RunProblem(
                    "cannot run \(plan.variant) because libjemalloc.so.2 is not installed; do: leave the variant out")
            }
            command = ["/usr/bin/env", "LD_PRELOAD=" + jemalloc] + command
        }
        return [plimsoll, "run", "--json", "--memory-max", "\(plan.limitBytes)", "--"] + command
    }

    private func loadCommand(_ plan: RunRecord, _ port: Int) -> [String] {
        [
            program, "load", "--port", "\(port)", "--seed", "\(plan.seed)", "--seconds", "\(plan.seconds)", "--warm-up",
            "\(plan.warmUp)", "--limit",
            "\(plan.limitBytes)",
            "--load", plan.load, "--rate", "\(plan.rate)",
        ]
    }

    /// Waits for the line with the server's port and process id.
    private func listening(_ server: Child) -> (port: Int, id: Int32)? {
        let end = Date().addingTimeInterval(Self.startTime)
        while server.isRunning, Date() < end, !Interruption.isAsked {
            let line = server.output.split(separator: "\n").first { $0.hasPrefix("listening ") }
            if let words = line?.split(separator: " "), words.count == 3, let port = Int(words[1]),
                let id = Int32(words[2])
            {
                return (port, id)
            }
            Thread.sleep(forTimeInterval: 0.02)
        }
        return nil
    }

    /// Ends the server by a signal to the group's process, which passes the signal on. If that fails, kills the server
    /// by id.
    private func end(_ server: Child, _ id: Int32?) throws {
        server.signal(SIGTERM)
        if server.wait(seconds: Self.endTime) { return }
        if let id { kill(id, SIGKILL) }
        if server.wait(seconds: Self.endTime) { return }
        server.signal(SIGKILL)
        throw RunProblem("cannot go on because a server did not end; do: look for processes of e2e-bench that are left")
    }

    private func lastLine<Value: Decodable>(_ text: String) -> Value? {
        guard let line = text.split(separator: "\n").last(where: { $0.hasPrefix("{") }) else { return nil }
        return try? JSONDecoder().decode(Value.self, from: Data(line.utf8))
    }

    /// Report of `plimsoll run --json` on the group.
    private struct GroupReport: Decodable {
        var oomKills: Int
        var peakBytes: Int
    }
}
