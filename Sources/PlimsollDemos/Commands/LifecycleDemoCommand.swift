import ArgumentParser
import Glibc
import Plimsoll

/// Takes a service process through the whole life cycle.
struct LifecycleDemoCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "lifecycle",
        abstract: "Take a service process through its life cycle, freezes included, and draw it.",
        discussion: """
            Launch, an interruption, the background with a task that takes too long, SIGSTOP, the return, the control group's freezer if there is \
            one, termination, and a second launch: about half a minute. Exit status: 0 if all expectations were met, 1 if not (the output lists them).
            """)

    @ParentCommand var demo: DemoCommand
    @Option(help: "File for the drawing.", completion: .file()) var svg = "out/lifecycle.svg"
    @Flag(help: "Exit with 69 if no group can be frozen, instead of skipping that part.")
    var requireFreezer = false

    func run() throws {
        try reportingFailure {
            let (group, refusal) = makeGroup()
            if requireFreezer, let refusal { throw Failure.unavailable("cannot freeze a group: \(refusal)") }
            let record = try ScratchDirectory.with("lifecycle") { directory in
                try LifecycleDemo(directory: directory, group: group, refusal: refusal).play()
            }
            // The parent command parses an option that both commands have.
            let svg = demo.svg ?? svg
            try File.write(LifecycleChart(record).svg, to: svg)
            Output.line("drawn: \(printable(svg))")
            try judge(record)
        }
    }

    private func makeGroup() -> (FreezerGroup?, refusal: String?) {
        do { return (try FreezerGroup("lifecycle"), nil) } catch { return (nil, "\(error)") }
    }

    private func judge(_ record: LifecycleRecord) throws {
        let all = LifecycleExpectation.all(for: record), missed = LifecycleExpectation.missed(by: record)
        for expectation in all {
            Output.line("\(missed.contains(expectation.name) ? "NOT SEEN" : "seen")  \(expectation.name)")
        }
        Output.line(
            "result: \(all.count - missed.count) of \(all.count) observed"
                + (record.freezerRefusal == nil ? "" : ", the freezer skipped"))
        if !missed.isEmpty { throw ExitCode.failure }
    }
}

/// The service of `demo lifecycle`, in a separate process.
struct LifecycleServiceCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_lifecycle-service", abstract: "Part of `demo lifecycle`.", shouldDisplay: false)

    @Option var directory: String
    /// Background allowance and termination grace, both in seconds.
    @Option var allowance: Double
    @Option var grace: Double

    func run() throws {
        // Block signals on the first thread, before other threads exist. A signal blocked in all threads stays
        // pending until `SignalQueue` reads it.
        let signals = SignalQueue()
        let service = LifecycleService(directory: directory, allowance: .seconds(allowance), grace: .seconds(grace))
        let life = Task {
            do {
                try await service.run()
                return ExitCode.success
            } catch {
                Output.problem("\(error)")
                return ExitCode.failure
            }
        }
        let listener = PlainThread {
            while let line = readLine() {
                guard let request = LifecycleRequest(rawValue: line) else { continue }
                Task {
                    do { try await service.take(request) } catch { Output.problem("\(request): \(error)") }
                }
            }
            // End of input: the parent is gone.
            kill(getpid(), SIGTERM)
        }
        listener?.detach()
        Task { LifecycleServiceCommand.exit(withError: await life.value) }
        while !(signals.next(within: .seconds(60)).map(SignalQueue.endings.contains) ?? false) {}
        life.cancel()
        while true { pause() }
    }
}
