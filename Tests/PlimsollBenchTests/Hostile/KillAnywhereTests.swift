import Glibc
import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollDemos
@testable import plimsoll_bench

/// The place of these tests: control groups, and the program with the supervisors that are killed.
private enum KillGround {
    /// The program with the supervisors that are killed.
    static let program = builtProgram("plimsoll-bench")

    /// The reason why no supervisor can run in groups here; `nil` if supervisors can.
    static let obstacle: String? = {
        guard access(program, X_OK) == 0 else { return "\(program) has not been built" }
        do {
            try GroupMaker().make("test-kill", limit: .mebibytes(64)).remove()
            return nil
        } catch {
            return "\(error)"
        }
    }()
}

/// A sample of the kills that `plimsoll-bench hostile --parts kill-anywhere` makes at every system call.
@Suite(.serialized, .timeLimit(.minutes(10)), .needs(KillGround.obstacle == nil, "no group can be made here"))
struct KillAnywhereTests {
    /// The number of kills in a phase.
    struct Sample: Sendable, CustomTestStringConvertible {
        /// The phases, of which each seed picks one.
        var phases: [KillPhase]
        /// The approximate number of system calls in a phase. For numbers beyond the phase, the supervisor is killed at
        /// the end of the phase.
        var calls: Int
        /// The number of kills for each seed.
        var points = 3
        var testDescription: String { phases.map(\.rawValue).joined(separator: " or ") }
    }

    /// The samples. Phases that wait for a shortage to pass take seconds.
    private static let samples = [
        Sample(phases: [.start], calls: 900), Sample(phases: [.takeOver], calls: 1250), Sample(phases: [.restart], calls: 300),
        Sample(phases: [.guard], calls: 200), Sample(phases: [.contain], calls: 160), Sample(phases: [.reload], calls: 300),
        Sample(phases: [.stop], calls: 250), Sample(phases: [.leave], calls: 300), Sample(phases: [.freeze, .throttle], calls: 500, points: 1),
    ]

    /// The reason why no thread can be traced here; `nil` if threads can.
    private static let obstacle: Comment? = {
        var harness = KillAnywhere()
        harness.program = KillGround.program
        do { _ = try harness.kill(.leave, at: 1) } catch let refusal as KillAnywhere.Refusal { return Comment(rawValue: refusal.reason) } catch {}
        return nil
    }()

    @Test(.needs(no: KillGround.obstacle == nil ? obstacle : nil), arguments: samples)
    func `T32 a supervisor killed anywhere leaves no unit frozen, slowed down, limited or duplicated`(sample: Sample) async throws {
        for seed in seeds(0..<0) {
            var random = SeededGenerator(seed: seed)
            let phase = sample.phases[Int.random(in: sample.phases.indices, using: &random)]
            for _ in 0..<sample.points {
                let nth = Int.random(in: 1...sample.calls, using: &random)
                // Off the cooperative pool, which other tests need. The bound is long, because a process may have to
                // wait beside a thousand other tests.
                let point = try await PlainThread.run {
                    var harness = KillAnywhere()
                    (harness.program, harness.bound) = (KillGround.program, .seconds(60))
                    return try harness.kill(phase, at: nth)
                }
                #expect(point.problems.isEmpty, "seed \(seed), \(phase.rawValue) at system call \(nth)")
            }
        }
    }
}
