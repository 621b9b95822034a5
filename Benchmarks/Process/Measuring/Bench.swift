import Plimsoll
import PlimsollDemos

/// Runs subcommands of this program in a group of their own for a benchmark, and cleans up.
struct Bench {
    let limit: ByteCount

    /// Runs an idle service in a new group and returns the cost. `beside` may start other processes in the group.
    func idle(
        cache: ByteCount, live: ByteCount = .zero, managed: Bool = true, timed: Bool = false,
        box: String? = nil,
        warmUp: Duration = .seconds(2), for length: Duration,
        beside: (LimitedGroup) throws -> ChildProcess? = { _ in nil }, atEnd: (LimitedGroup) -> Void = { _ in }
    ) throws -> Idler.Result {
        let signals = SignalQueue(), group = try makeGroup()
        defer { group.remove() }
        var arguments = [
            "_idler", "--cache", "\(cache.bytes)", "--live", "\(live.bytes)", "--seconds", "\(length.inSeconds)",
        ]
        arguments +=
            ["--warm-up", "\(warmUp.inSeconds)"] + (managed ? ["--managed"] : []) + (timed ? ["--timed"] : [])
            + (box.map { ["--box", $0] } ?? [])
        let child = try group.startPart(arguments)
        defer { child.end(within: .zero) }
        let neighbour = try beside(group)
        defer { neighbour?.end(within: .zero) }

        var result: Idler.Result?
        try Self.wait(for: child, signals, until: SteadyClock.now + warmUp + length + .seconds(60))
        for line in child.output?.lines() ?? [] { result = try? JSONLine.decode(Idler.Result.self, from: line) }
        atEnd(group)
        guard let result, child.ending == .exited(0) else {
            throw Failure.failed(
                "the idle service ended with status \(child.end(within: .zero).status) and \(group.kills) OOM kills")
        }
        return result
    }

    /// Runs a subcommand in a new group. The subcommand prints the figures.
    func run(_ arguments: [String], within length: Duration) throws {
        let signals = SignalQueue(), group = try makeGroup()
        defer { group.remove() }
        let child = try group.startPart(arguments, readsOutput: false)
        defer { child.end(within: .zero) }
        try Self.wait(for: child, signals, until: SteadyClock.now + length)
        let ending = child.end(within: .zero)
        guard ending == .exited(0) else {
            throw Failure.failed("the process ended with status \(ending.status) and \(group.kills) OOM kills")
        }
    }

    private func makeGroup() throws -> LimitedGroup {
        do {
            return try GroupMaker().make("bench", limit: limit)
        } catch {
            throw Failure.unavailable("\(error)\nWhat to do: \(GroupMaker.Refusal.remedy).")
        }
    }

    private static func wait(for child: ChildProcess, _ signals: SignalQueue, until deadline: Duration) throws {
        while child.poll() == nil, SteadyClock.now < deadline {
            if let signal = signals.next(within: .milliseconds(200)), SignalQueue.endings.contains(signal) {
                throw Failure.failed("interrupted")
            }
        }
    }

    static func figure(_ name: String, _ value: Double, _ unit: String) {
        Output.line("figure \(name) \(Text.number(value, decimals: 3)) \(unit)")
    }
}

extension Idler.Result {
    private var seconds: Double { max(1e-6, Double(measuredMicroseconds) / 1e6) }
    var wakeupsPerSecond: Double { Double(wakeups) / seconds }
    /// Processor time in percent of one processor.
    var processorPercent: Double { Double(processorMicroseconds) / 1e4 / seconds }
}

/// Returns the value below which `share` of `values` lie (nearest rank); `nil` for none.
func quantile(_ share: Double, of values: [Double]) -> Double? {
    let sorted = values.sorted()
    guard !sorted.isEmpty else { return nil }
    let rank = Int((min(1, max(0, share)) * Double(sorted.count)).rounded(.up))
    return sorted[max(0, rank - 1)]
}
