import Glibc
import Plimsoll
import PlimsollLinux
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// Tests that a successor starts only once the former process has ended, with all processes that it has started.
@Suite(.serialized) struct SuccessorTests {
    /// Returns a unit that leaves a child in a session of its own or in its parent's session; SIGTERM does not end the
    /// child. Each run of the unit first checks whether the former run's child still runs, and logs the result.
    private func unit(_ directory: String, _ version: Int = 1, ownSession: Bool) -> ServiceUnit {
        let lasting = "trap '' TERM HUP; echo \\$\\$ > \(directory)/new; mv \(directory)/new \(directory)/child; exec sleep 1000"
        let child = "\(ownSession ? "setsid " : "")sh -c \"\(lasting)\""
        let script = """
            : version \(version)
            former=$(cat \(directory)/child 2>/dev/null) && if grep -q '^State:[^A-Z]*[RSDTt]' /proc/$former/status 2>/dev/null
            then echo overlap; else echo alone; fi >> \(directory)/log
            rm -f \(directory)/child; \(child) &
            while [ ! -e \(directory)/child ]; do sleep 0.01; done; echo $$ > \(directory)/main; exec sleep 1000
            """
        return .shell("web", script) { $0.restart = .always }
    }

    private static let roots: [[Hierarchy]?] = [nil, [.memory, .freezer], [.memory]]

    /// - Parameter act: Ends the unit's process, which has the given pid.
    private func play(_ hierarchies: [Hierarchy]?, ownSession: Bool, _ act: (RunningFleet, Int32, String) -> Void) async throws {
        let directory = Fixture.Directory()
        defer { for name in ["main", "child", "log"] { unlink("\(directory.path)/\(name)") } }
        func text(_ name: String) -> String { String(decoding: (try? GroupText.read("\(directory.path)/\(name)").get()) ?? [], as: UTF8.self) }
        func main() -> Int32? { text("main").hasSuffix("\n") ? Int32(text("main").dropLast()) : nil }
        let fleet = try RunningFleet([unit(directory.path, ownSession: ownSession)], root: hierarchies.map { Workbench.root(version1: $0) })
        #expect(await fleet.waits { main() != nil && fleet.state("web") == .running })
        var children: [Int32] = []
        for _ in 0..<3 {
            let first = try #require(main()), child = try #require(Int32(text("child").dropLast()))
            children.append(child)
            act(fleet, first, directory.path)
            #expect(await fleet.waits { main().map { $0 != first } ?? false && fleet.state("web") == .running })
            #expect(!RunningFleet.isRunning(child) && !RunningFleet.isRunning(first))
        }
        #expect(text("log") == "alone\nalone\nalone\n")
        let last = try #require(Int32(text("child").dropLast()))
        #expect(await fleet.stop() && !RunningFleet.isRunning(last), "\(fleet.problems)")
    }

    /// Without groups, a session keeps the processes of a unit together: a process that leaves the session as well
    /// belongs to no unit.
    @Test(arguments: [(nil, false), ([], false)] + roots.map { ($0, true) })
    func `a unit is started again only after all processes of the former run have ended`(root: [Hierarchy]?, ownSession: Bool) async throws {
        try await play(root, ownSession: ownSession) { _, main, _ in kill(main, SIGKILL) }
    }

    @Test(arguments: roots)
    func `a changed unit replaces the former unit only after that unit has ended`(root: [Hierarchy]?) async throws {
        var version = 1
        try await play(root, ownSession: true) { fleet, _, directory in
            version += 1
            fleet.supervisor.reload([unit(directory, version, ownSession: true)])
        }
    }

    @Test func `a unit that is removed and added again starts only after the former unit has ended`() async throws {
        try await play(nil, ownSession: true) { fleet, _, directory in
            fleet.supervisor.reload([])
            fleet.supervisor.reload([unit(directory, ownSession: true)])
        }
    }
}
