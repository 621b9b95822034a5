import ArgumentParser
import Foundation
import Plimsoll
import PlimsollSupervisor
import Testing

@testable import PlimsollDemos
@testable import plimsoll_bench

@Suite struct PeerTests {
    /// Returns a record in which all three serve from the beginning, with `change` applied to the observations from
    /// second 2 on.
    private func record(_ keeper: PeerPlay.Keeper = .earlyoom, _ change: (inout PeerRecord.Sample) -> Void = { _ in }) -> PeerRecord {
        var record = PeerRecord(keeper: keeper, length: .seconds(10))
        let names = Set(Trio.members.map(\.name))
        for tenths in 0..<100 {
            var sample = PeerRecord.Sample(alive: names, serving: names)
            if tenths >= 20 { change(&sample) }
            record.take(sample, at: .milliseconds(tenths * 100))
        }
        for name in names { record.lost[name] = 0 }
        return record
    }

    @Test func `a member that serves to the end has survived, if no work was lost`() {
        var record = record()
        #expect(record.survived && record.ends.isEmpty && record.unserved == .zero)
        record.lost["hog"] = 7
        #expect(record.survived)
        record.lost["bystander"] = 1
        #expect(!record.survived && record.row.contains("bystander 1, hog 7"))
        #expect(!PeerRecord(keeper: .kernel, length: .seconds(1)).survived, "no member has begun")
    }

    @Test func `a dead member is unserved from the last order on, and the kernel answers for the kills counted`() {
        let record = record {
            ($0.alive, $0.serving, $0.kills) = (["bystander"], ["bystander"], 1)
        }
        #expect(record.ends.map(\.name) == ["important", "hog"] && record.ends.map(\.isKernels) == [true, false])
        #expect(record.ends.allSatisfy { $0.at == .seconds(2) })
        #expect(!record.survived && record.unserved == .milliseconds(8100))
        #expect(record.row[1] == "important after 2.0 s by the kernel, hog after 2.0 s")
    }

    @Test func `a frozen member is alive, and not served`() {
        let stood = record(.plimsoll) { $0.serving = ["important", "hog"] }
        #expect(stood.survived && stood.unserved == .milliseconds(8100) && stood.row[1] == "nobody")
        var samples = 0
        let back = record(.plimsoll) {
            samples += 1
            if samples < 60 { $0.serving = ["important", "hog"] }
        }
        #expect(back.survived && back.unserved == .seconds(6))
    }

    @Test func `the bench uses up the whole machine only on request`() {
        #expect(throws: (any Error).self) { try BenchCommand.parseAsRoot(["peers"]) }
        #expect(throws: Never.self) { try BenchCommand.parseAsRoot(["peers", "--whole-machine"]) }
    }
}
