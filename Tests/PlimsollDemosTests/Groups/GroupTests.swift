import Foundation
import Plimsoll
import PlimsollLinux
import Testing

@testable import PlimsollDemos

/// A separate directory, removed afterwards.
private final class Fixture {
    let path = NSTemporaryDirectory() + "plimsoll-test-\(UUID().uuidString)"

    init(_ files: [String: String]) throws {
        for (name, text) in files {
            let file = URL(fileURLWithPath: path + "/" + name)
            try FileManager.default.createDirectory(at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
            try text.write(to: file, atomically: false, encoding: .utf8)
        }
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    var directories: [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []).filter { $0.hasPrefix("plimsoll-") }
    }

    func group(version: ControlGroup.Version, own: String, unified: String? = nil) -> ControlGroup {
        var group = ControlGroup(HostKernel())
        group.version = version
        group.memory = .directory(own.isEmpty ? path : path + "/" + own, top: path)
        group.unified = unified.map { .directory(path + "/" + $0, top: path) } ?? group.memory
        return group
    }
}

@Suite struct GroupTests {
    @Test func `a group is made below the own group where that group passes memory on`() throws {
        let fixture = try Fixture(["own/cgroup.subtree_control": "cpu memory\n", "cgroup.subtree_control": "memory\n"])
        let group = try GroupMaker(own: fixture.group(version: .v2, own: "own")).make("a", limit: nil)
        #expect(group.memory == fixture.path + "/own/plimsoll-\(getpid())-a")
        #expect(group.directories == [group.memory])
        #expect(group.remove())
    }

    @Test func `a group is made beside the own group where only the parent passes memory on`() throws {
        let fixture = try Fixture(["own/cgroup.controllers": "cpu\n", "cgroup.subtree_control": "memory\n"])
        let group = try GroupMaker(own: fixture.group(version: .v2, own: "own")).make("a", limit: nil)
        #expect(group.memory == fixture.path + "/plimsoll-\(getpid())-a")
        #expect(group.remove())
    }

    @Test func `a group is never made above the mount`() throws {
        let fixture = try Fixture(["cgroup.controllers": "cpu\n"])
        let maker = GroupMaker(own: fixture.group(version: .v2, own: ""))
        #expect(throws: GroupMaker.Refusal.self) { try maker.make("a", limit: nil) }
    }

    @Test func `a hybrid host gets a second directory for stall, and both directories are removed`() throws {
        let fixture = try Fixture(["memory/tasks": "", "unified/cgroup.procs": ""])
        // A real unified directory contains memory.pressure at once. An ordinary directory does not, and is removed
        // again.
        let group = try GroupMaker(own: fixture.group(version: .v1, own: "memory", unified: "unified")).make("a", limit: nil)
        #expect(group.version == .v1 && group.stall == nil)
        #expect(group.remove())
        #expect(try FileManager.default.contentsOfDirectory(atPath: fixture.path + "/unified") == ["cgroup.procs"])
    }

    @Test func `a refused limit leaves no group behind, and the error gives the reason`() throws {
        let fixture = try Fixture(["cgroup.subtree_control": "memory\n"])
        let maker = GroupMaker(own: fixture.group(version: .v2, own: ""))
        do {
            _ = try maker.make("a", limit: .mebibytes(64))
            Issue.record("an ordinary directory took a limit")
        } catch {
            #expect(error.description.contains("memory.max: No such file or directory"))
        }
        #expect(fixture.directories.isEmpty)
    }

    @Test func `memory high is refused where memory is on version 1`() throws {
        let fixture = try Fixture(["memory/tasks": ""])
        let maker = GroupMaker(own: fixture.group(version: .v1, own: "memory"))
        do {
            _ = try maker.make("a", limit: nil, high: .mebibytes(64))
            Issue.record("version 1 took memory.high")
        } catch {
            #expect(error.reasons == ["memory.high needs cgroup v2, and memory is on v1 here"])
        }
    }

    @Test func `a version 2 group is read from files`() throws {
        let fixture = try Fixture([
            "memory.current": "1048576\n", "memory.peak": "2097152\n", "memory.events": "low 0\nhigh 1\nmax 7\noom 2\noom_kill 3\n",
            "memory.stat": "anon 10\nfile 409600\nshmem 4096\n",
            "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=4711\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=12\n",
        ])
        let group = LimitedGroup(version: .v2, memory: fixture.path, stall: fixture.path)
        #expect(group.usage == .mebibytes(1) && group.peak == .mebibytes(2))
        #expect(group.kills == 3 && group.limitHits == 7)
        #expect(group.stalled == .microseconds(4711))
        #expect(group.pinned == ByteCount(1_048_576 - 409_600 + 4096))
    }

    @Test func `a version 1 group is read from files`() throws {
        let fixture = try Fixture([
            "memory.usage_in_bytes": "1048576\n", "memory.max_usage_in_bytes": "2097152\n", "memory.failcnt": "9\n",
            "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", "memory.stat": "cache 1\ntotal_cache 8192\ntotal_shmem 0\n",
        ])
        let group = LimitedGroup(version: .v1, memory: fixture.path, stall: nil)
        #expect(group.usage == .mebibytes(1) && group.peak == .mebibytes(2))
        #expect(group.kills == 2 && group.limitHits == 9 && group.stalled == nil)
        #expect(group.pinned == ByteCount(1_048_576 - 8192))
    }

    @Test func `a removed group has no usage, and a second removal succeeds`() {
        let group = LimitedGroup(version: .v2, memory: "/nonexistent/plimsoll", stall: "/nonexistent/plimsoll")
        #expect(group.usage == .zero && group.peak == nil && group.kills == 0 && group.stalled == nil)
        #expect(group.remove())
    }
}
