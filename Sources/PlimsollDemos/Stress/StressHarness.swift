import Glibc
import Plimsoll
import PlimsollLinux

/// Runs subjects, some side by side, and adds up the outcomes.
struct StressHarness {
    var scenarios: [Scenario]
    var protections: [Protection]
    var runs: Int
    var limit: ByteCount
    var parallel: Int
    /// Seed of the first run; each later run has the next one.
    var seed: UInt64
    var directory: String
    var allowsSwap = false

    /// Runs all scenarios.
    ///
    /// - Parameter report: receives a line as each run ends.
    func run(_ report: (String) -> Void) throws -> [StressSummary] {
        let signals = SignalQueue()
        var summaries: [StressSummary] = []
        var number = 0
        for scenario in scenarios {
            var ofScenario = protections.map {
                StressSummary(scenario: scenario, protection: $0, skipped: reasonToSkip(scenario))
            }
            defer { summaries += ofScenario }
            guard ofScenario[0].skipped == nil else { continue }
            // Alternate the protections, so that drift of the machine affects all alike.
            var waiting = (0..<runs).flatMap { _ in ofScenario.indices }[...]
            var active: [(index: Int, run: StressRun)] = []
            defer { for (_, run) in active { run.cleanUp() } }
            while !waiting.isEmpty || !active.isEmpty {
                while active.count < parallel, let index = waiting.popFirst() {
                    number += 1
                    let run = try StressRun(
                        scenario, protections[index], limit: limit, seed: seed &+ UInt64(number), directory: directory,
                        allowsSwap: allowsSwap,
                        number: number)
                    active.append((index, run))
                }
                for position in active.indices.reversed() {
                    let (index, run) = active[position]
                    guard let outcome = run.poll() else { continue }
                    run.cleanUp()
                    active.remove(at: position)
                    ofScenario[index].add(outcome)
                    report(
                        "\(scenario.rawValue) \(run.protection.rawValue) \(ofScenario[index].runs)/\(runs): \(describe(outcome))"
                    )
                }
                if let signal = signals.next(within: .milliseconds(10)), SignalQueue.endings.contains(signal) {
                    throw Failure.failed("interrupted; the subjects are ended and their groups removed")
                }
            }
        }
        return summaries
    }

    private func describe(_ outcome: StressRun.Outcome) -> String {
        switch outcome {
        case .survived(let result): "survived, kept \(result.keptEntries) entries, lost \(result.lostEntries)"
        case .killed: "killed"
        case .invalid(let reason): "inconclusive: \(reason)"
        }
    }

    private func reasonToSkip(_ scenario: Scenario) -> String? {
        switch scenario {
        case .pageCache:
            // Files on tmpfs are not reclaimable page cache.
            let isInMemory =
                FileSystem.type(of: directory).map { ["tmpfs", "ramfs", "devtmpfs", "rootfs"].contains($0) } ?? false
            return isInMemory ? "\(directory) is in memory; name a directory on a disk with --directory" : nil
        case .limitCut:
            return ControlGroup(HostKernel()).version == .v1
                ? "version 1 refuses a limit below what cannot be reclaimed" : nil
        default: return nil
        }
    }
}
