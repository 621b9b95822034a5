import CPlimsollSupervisor
import Glibc
import Plimsoll
import PlimsollLinux
import Synchronization
import Testing

@testable import PlimsollSupervisor

/// Helpers shared by the tests on the real kernel. The tests wait for the kernel's reports, never for time to pass. The
/// limits only end a hang.
enum Workbench {
    static let limit = Duration.seconds(120)
    private static let count = Atomic(0)

    /// Returns a root for one test: names of two tests never collide.
    static func root() -> GroupRoot { GroupRoot(prefix: prefix()) }

    /// The directory for test files: on a disk where there is one, as locks and page cache are to be real.
    static let directory = access("/var/tmp", W_OK) == 0 ? "/var/tmp" : "/tmp"

    /// Returns a new prefix. Groups with the prefix end with the tests.
    static func prefix() -> String {
        _ = OrphanCleanup.mark
        return "plimsoll-test-\(getpid())-\(count.add(1, ordering: .relaxed).newValue)"
    }

    /// Returns a root as on a machine that has only those version 1 hierarchies.
    static func root(version1 hierarchies: [Hierarchy], prefix: String = prefix()) -> GroupRoot {
        let own = OwnGroups()
        var probe = GroupProbe(prefix: prefix)
        for hierarchy in hierarchies { probe.version1(hierarchy, own.places[hierarchy]) }
        return GroupRoot(probe, own: own, prefix: prefix)
    }

    static let found = GroupRoot(prefix: prefix())
    static let hasFreezer = found.capabilities["freeze"]!.isLive && found.layout != .version1
    static let hasCharge = found.capabilities["charge"]!.isLive
    static let hasSwap = found.capabilities["swap"]!.isLive && found.capabilities["reclaim"]!.isLive
    static let hasVersion1Freezer = root(version1: [.freezer]).layout == .version1
    static let hasVersion1Memory = root(version1: [.memory]).parents[.memory] != nil

    /// Starts a shell whose output arrives at the returned end of a pipe.
    static func shell(_ script: String, in group: UnitGroup?) throws -> (child: Child, output: Output) {
        let output = Output()
        var launch = Child.Launch(["/bin/sh", "-c", script])
        launch.environment = ["PATH": "/usr/bin:/bin", OrphanCleanup.variable: OrphanCleanup.mark]
        launch.output = output.write
        let child = try Child.start(launch, in: group)
        output.closeWrite()
        return (child, output)
    }

    /// Script of processes that each start one and end, four at a time: no list of the processes is valid for long.
    /// After so many generations the storm ends, in case a test does not end the storm.
    static let storm = """
        export n=0 next='[ $n -gt 20000 ] && exit; n=$((n+1)); sh -c "$next" & exit'
        for i in 1 2 3 4; do sh -c "$next" & done; echo ready; exec sleep 1000
        """

    /// Ends and removes all remains of a test.
    static func clear(_ group: UnitGroup, _ children: Child...) {
        try? group.killAll()
        try? group.thaw()
        for child in children { child.waitForEnd() }
        try? group.remove(within: limit)
    }
}

extension SupervisorLoop {
    /// Waits until the unit's processes have ended, and handles the event of that end. For a loop that does not run.
    func awaitEnd(of run: UnitRun) {
        run.child?.waitForEnd()
        #expect(run.group.waitUntilEmpty(Workbench.limit))
        handle(Token.of(run.id, Token.child))
    }
}

/// The reading end of a child's output.
final class Output {
    let read: Int32
    private(set) var write: Int32

    init() {
        var ends: [Int32] = [-1, -1]
        precondition(pipe(&ends) == 0)
        (read, write) = (ends[0], ends[1])
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    }

    deinit {
        close(read)
        closeWrite()
    }

    func closeWrite() {
        if write >= 0 { close(write) }
        write = -1
    }

    /// Returns the next line; `nil` at the end, or if no line comes.
    func line() -> String? {
        var line: [UInt8] = []
        var byte: UInt8 = 0
        while plimsoll_ready(read, POLLIN, 60_000) != 0, Glibc.read(read, &byte, 1) == 1 {
            if byte == UInt8(ascii: "\n") { return String(decoding: line, as: UTF8.self) }
            line.append(byte)
        }
        return line.isEmpty ? nil : String(decoding: line, as: UTF8.self)
    }

    /// Reads `count` bytes. Returns false if fewer bytes come.
    func take(_ count: Int) -> Bool {
        var rest = count
        var chunk = [UInt8](repeating: 0, count: 4096)
        while rest > 0, plimsoll_ready(read, POLLIN, 60_000) != 0 {
            let taken = Glibc.read(read, &chunk, min(rest, chunk.count))
            if taken <= 0 { return false }
            rest -= taken
        }
        return rest <= 0
    }

    /// True if there is output to read now.
    var isReady: Bool { plimsoll_ready(read, POLLIN, 0) & POLLIN != 0 }
    /// True if no process holds the writing end any more. Waits for a while for that.
    var hasEnded: Bool { plimsoll_ready(read, 0, 20_000) & POLLHUP != 0 }
}

extension UnitGroup {
    /// Throttles the unit, or lifts the limits again. Returns the reason why that is impossible here.
    @discardableResult
    func throttle(_ on: Bool) throws(GroupError) -> String? {
        let throttle = self.throttle()
        if throttle.set.isEmpty { return whyNotThrottled }
        if on { try apply(throttle) }
        for limit in on ? [] : throttle.lift { try limit.directory.write(limit.text, to: limit.file, for: .throttle) }
        return nil
    }
}
