import Foundation
import PlimsollTesting
import Synchronization
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle
@testable import PlimsollLinux

/// Preserved state on the real file system, over several runs of a process.
@Suite(.serialized, .timeLimit(.minutes(5))) struct FileStateStoreLifecycleTests {
    let directory = TemporaryDirectory()

    /// One run of the process, whose state is a list.
    final class Run: Sendable {
        let lifecycle = ResourceManager(source: ScriptedPressureSource()).lifecycle
        let items = Mutex<[UInt8]>([])
        let handle: Mutex<Preserved?> = Mutex(nil)

        init(_ directory: TemporaryDirectory) {
            let handle = lifecycle.preserve(
                "cart", in: FileStateStore(directory: directory.path), snapshot: { [unowned self] in items.withLock { $0 } },
                restore: { [unowned self] bytes in items.withLock { $0 = bytes } },
                apply: { [unowned self] bytes in items.withLock { $0 += bytes } }, reset: { [unowned self] in items.withLock { $0 = [] } })
            self.handle.withLock { $0 = handle }
        }

        var all: [UInt8] { items.withLock { $0 } }

        /// Launches the run. Returns the outcome of the restore.
        func launch() -> RestoreOutcome {
            let outcome = lifecycle.preservation.restore()
            #expect(lifecycle.preservation.launched() == nil)
            return outcome
        }

        func add(_ item: UInt8) {
            items.withLock { $0.append(item) }
            handle.withLock { $0 }?.record([item])
        }

        func checkpoint() { #expect(lifecycle.preservation.checkpoint(within: .seconds(60)).isEmpty) }
    }

    @Test func `C41 C42 C43 the next run has the last checkpoint's state, with any later changes lost`() throws {
        for round in UInt8(0)..<5 {
            let run = Run(directory)
            let outcome = run.launch()
            #expect(
                outcome["cart"] == (round == 0 ? RestoreOutcome.Result.none : .restored) && outcome.previousRun == (round == 0 ? .none : .crashed))
            #expect(run.all == Array(0..<2 * round))
            run.add(2 * round)
            run.checkpoint()
            run.add(2 * round + 1)
            run.checkpoint()
            // This item is never saved: the process is killed first.
            run.add(99)
            // The beginning of an append that a kill interrupts does not count either.
            run.lifecycle.preservation.relinquish()
            let file = try FileHandle(forWritingTo: directory.url("cart.state"))
            try file.seekToEnd()
            file.write(Data([0x50, 0x52, 0x45, 0x43, 1, 2, 3]))
            try file.close()
        }
    }

    @Test func `C24 T36 a damaged count of launches makes the end of the last run unknown, and is reported`() throws {
        do {
            let run = Run(directory)
            #expect(run.launch().previousRun == .none)
            run.checkpoint()
            #expect(run.lifecycle.preservation.ended() == nil)
        }
        let name = StateName.launches + ".state", good = try Data(contentsOf: directory.url(name))
        try Data(good.dropLast()).write(to: directory.url(name))
        let outcome = Run(directory).launch()
        #expect(outcome.previousRun == .unknown && outcome["cart"] == .restored)
        #expect(outcome.problems.count == 1 && outcome.problems[0].hasPrefix("cannot read the count of launches: the file is truncated"))
    }

    @Test func `C42 T36 a damaged file leads to a clean start and is kept, and so does a kill by hand`() throws {
        do {
            let run = Run(directory)
            _ = run.launch()
            run.add(1)
            run.checkpoint()
            #expect(run.lifecycle.preservation.ended() == nil)
        }
        let good = try Data(contentsOf: directory.url("cart.state"))
        try Data(good.dropLast()).write(to: directory.url("cart.state"))
        do {
            let run = Run(directory)
            let outcome = run.launch()
            #expect(outcome.previousRun == .clean)
            guard case .cleanStart(let reason) = outcome["cart"] else {
                Issue.record("\(outcome)")
                return
            }
            #expect(reason.hasPrefix("the file is truncated to") && run.all == [])
            #expect(try Data(contentsOf: directory.url("cart.state-aside-1")) == Data(good.dropLast()))
            run.add(2)
            run.checkpoint()
            // The mark comes from outside, during the run.
            try Data().write(to: directory.url("killed-by-operator"))
        }
        let run = Run(directory)
        let outcome = run.launch()
        #expect(outcome.previousRun == .killedByOperator && run.all == [] && outcome.cleanStartReason != nil)
        #expect(
            try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted() == [
                "cart.state-aside-1", "cart.state-aside-2", "lock", "plimsoll.launches.state",
            ])
    }
}
