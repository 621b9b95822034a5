import Plimsoll

/// Runs parts of this program in a group of their own for a benchmark, and cleans up after them.
struct Bench {
    let limit: ByteCount

    /// Idles in a new group and returns what it cost. `beside` may start other processes in the group.
    func idle(
        cache: ByteCount, live: ByteCount = .zero, managed: Bool = true, timed: Bool = false, settling: Duration = .seconds(2), for length: Duration,
        beside: (LimitedGroup) throws -> ChildProcess? = { _ in nil }, atEnd: (LimitedGroup) -> Void = { _ in }
    ) throws -> Idler.Result {
        let signals = SignalQueue()
        let group: LimitedGroup
        do {
            group = try GroupMaker().make("bench", limit: limit)
        } catch {
            throw Failure.unavailable("\(error)\nWhat to do: \(GroupMaker.Refusal.remedy).")
        }
        defer { group.remove() }
        var arguments = ["_idler", "--cache", "\(cache.bytes)", "--live", "\(live.bytes)", "--seconds", "\(length.inSeconds)"]
        arguments += ["--settling", "\(settling.inSeconds)"] + (managed ? ["--managed"] : []) + (timed ? ["--timed"] : [])
        let child = try group.startPart(arguments)
        defer { child.end(within: .zero) }
        let neighbour = try beside(group)
        defer { neighbour?.end(within: .zero) }

        var result: Idler.Result?
        let deadline = SteadyClock.now + settling + length + .seconds(60)
        while child.poll() == nil, SteadyClock.now < deadline {
            if let signal = signals.next(within: .milliseconds(200)), SignalQueue.endings.contains(signal) { throw Failure.failed("interrupted") }
        }
        for line in child.output?.lines() ?? [] { result = try? JSONLine.decode(Idler.Result.self, from: line) }
        atEnd(group)
        guard let result, child.ending == .exited(0) else {
            throw Failure.failed("the idle service ended with status \(child.end(within: .zero).status) and \(group.kills) OOM kills")
        }
        return result
    }

    static func figure(_ name: String, _ value: Double, _ unit: String) { Output.line("figure \(name) \(Text.number(value, decimals: 3)) \(unit)") }
}

extension Idler.Result {
    private var seconds: Double { max(1e-6, Double(measuredMicroseconds) / 1e6) }
    var wakeupsPerSecond: Double { Double(wakeups) / seconds }
    /// Of one processor, in percent.
    var processorPercent: Double { Double(processorMicroseconds) / 1e4 / seconds }
}
