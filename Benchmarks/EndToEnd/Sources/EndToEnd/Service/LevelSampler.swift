import Foundation
import Plimsoll
import PlimsollLifecycle
import Synchronization

/// Samples a manager's status 20 times a second: the time at each level, and levels held with memory to spare.
final class LevelSampler: Sendable {
    private let manager: ResourceManager
    private let work: Work
    private let limit: Int
    private let samples: FileHandle?
    private let seen = Mutex(Seen())
    private let hasEnded = Atomic<Bool>(false)

    private struct Seen {
        var secondsAtLevel: [String: Double] = [:]
        var held = 0.0
        var mostHeld = 0.0
    }

    private static let interval = 0.05
    /// Share of the limit from which a level counts as held without need: 1.2 times the standard warning margin, which
    /// is a fifth.
    private static let spare = 0.20 * 1.2

    /// - Parameter samples: a file that each sample is appended to, as a line of JSON.
    init(_ manager: ResourceManager, _ work: Work, limit: Int, samples: String?) {
        self.samples = samples.flatMap { path in
            FileManager.default.createFile(atPath: path, contents: nil)
            return FileHandle(forWritingAtPath: path)
        }
        self.manager = manager
        self.work = work
        self.limit = limit
    }

    /// Starts a separate thread, because a task would wait for computing tasks.
    func start() { Thread.detachNewThread { self.run() } }

    func stop() { hasEnded.store(true, ordering: .relaxed) }

    /// Longest time that a level was held without need, and seconds at each level.
    var result: (heldSeconds: Double, secondsAtLevel: [String: Double]) {
        seen.withLock { ($0.mostHeld, $0.secondsAtLevel) }
    }

    private func run() {
        let clock = ContinuousClock()
        var last = clock.now
        while !hasEnded.load(ordering: .relaxed) {
            Thread.sleep(forTimeInterval: Self.interval)
            let now = clock.now, passed = last.duration(to: now) / .seconds(1), status = manager.status
            last = now
            let available = status.availableBytes ?? 0
            let isHeld = status.level != "normal" && !work.isBusy && Double(available) >= Double(limit) * Self.spare
            if let samples { samples.write(Sample(status).line) }
            seen.withLock {
                $0.secondsAtLevel[status.level, default: 0] += passed
                $0.held = isHeld ? $0.held + passed : 0
                $0.mostHeld = max($0.mostHeld, $0.held)
            }
        }
    }
}
