import Plimsoll
import PlimsollDemos
import Synchronization

/// Runs `KillAnywhere` at every point of every phase, two phases at a time.
struct KillAnywhereBench {
    var phases = KillPhase.allCases
    /// Distance between two kills, in system calls.
    var stride = 1
    /// The first system call.
    var from = 1
    /// Limit of system calls in a phase, so that none runs for ever.
    static let most = 20_000

    /// Runs all phases.
    ///
    /// - Returns: number of points, and of those that were wrong.
    func run() throws -> (points: Int, wrong: Int) {
        let waiting = Mutex(phases), counts = Mutex((points: 0, wrong: 0)), failure = Mutex<(any Error)?>(nil)
        let work: @Sendable () -> Void = { [self] in
            while failure.withLock({ $0 == nil }), let phase = waiting.withLock({ $0.isEmpty ? nil : $0.removeFirst() })
            {
                do {
                    let (points, wrong) = try run(phase)
                    counts.withLock { $0 = ($0.points + points, $0.wrong + wrong) }
                } catch { failure.withLock { $0 = error } }
            }
        }
        let beside = PlainThread(work)
        work()
        beside?.join()
        if let failure = failure.withLock({ $0 }) { throw failure }
        return counts.withLock { $0 }
    }

    private func run(_ phase: KillPhase) throws -> (points: Int, wrong: Int) {
        let begin = SteadyClock.now
        var points = 0, wrong = 0
        for nth in Swift.stride(from: from, through: Self.most, by: stride) {
            let point: KillAnywhere.Point
            do { point = try KillAnywhere().kill(phase, at: nth) } catch let refusal as KillAnywhere.Refusal {
                throw Failure.unavailable(refusal.reason)
            }
            points += 1
            if !point.problems.isEmpty {
                wrong += 1
                let call = point.call.map { "number \($0)" } ?? "the end"
                // The first reports are enough: a defect usually has many points.
                if wrong <= 20 {
                    Output.line(
                        "# wrong: \(phase.rawValue) at system call \(nth) (\(call)): \(point.problems.joined(separator: "; "))"
                    )
                }
            }
            guard point.call != nil else {
                Output.line(
                    "# \(phase.rawValue): \(points) points, \(wrong) wrong, \(Text.number((SteadyClock.now - begin).inSeconds)) s"
                )
                return (points, wrong)
            }
        }
        throw Failure.failed("\(phase.rawValue) did not end after \(Self.most) system calls")
    }
}
