import Glibc
import Plimsoll
import PlimsollLinux
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// A successor starts only once the one before has ended, with all that it has started.
@Suite(.serialized) struct SuccessorTests {
    /// Leaves a child that lets no SIGTERM end it, in a session of its own or its parent's. Each of its runs first looks whether the child of the one before
    /// runs still, and writes down what it has found.
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

    /// - Parameter act: ends the unit's process with the number that it is given, somehow.
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

    /// Where there are no groups, a session keeps them together: who has left that as well is nobody's.
    @Test(arguments: [(nil, false), ([], false)] + roots.map { ($0, true) })
    func `a unit is started again only once all remains of the former process are gone`(root: [Hierarchy]?, ownSession: Bool) async throws {
        try await play(root, ownSession: ownSession) { _, main, _ in kill(main, SIGKILL) }
    }

    @Test(arguments: roots)
    func `a changed unit replaces the former one only after that one is gone`(root: [Hierarchy]?) async throws {
        var version = 1
        try await play(root, ownSession: true) { fleet, _, directory in
            version += 1
            fleet.supervisor.reload([unit(directory, version, ownSession: true)])
        }
    }

    @Test func `a unit taken out and put back starts only after the former one is gone`() async throws {
        try await play(nil, ownSession: true) { fleet, _, directory in
            fleet.supervisor.reload([])
            fleet.supervisor.reload([unit(directory, ownSession: true)])
        }
    }
}
