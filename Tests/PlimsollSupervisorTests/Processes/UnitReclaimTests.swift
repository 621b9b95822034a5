import Glibc
import Plimsoll
import TestSupport
import Testing

@testable import PlimsollSupervisor

@Suite(.serialized) struct UnitReclaimTests {
    @Test(.needs(Workbench.hasSwap && Workbench.hasFreezer, "no swap, memory.reclaim or freezer here", or: .virtualMachine))
    func `T31 a frozen unit is swapped out, and reads the same memory after the thaw`() throws {
        let group = try Workbench.root().make("web")
        // The shell keeps eight million letters, in which no two pages are alike, and reads the letters again when the
        // shell's child ends. A trapped signal would be unsafe here: the signal can be delivered before a `wait`, which
        // then waits for ever.
        let (child, output) = try Workbench.shell(
            """
            text=$(head -c 6000000 /dev/urandom | base64); sleep 1000 & echo $!
            echo "$text" | md5sum; wait; echo "$text" | md5sum
            """, in: group)
        defer { Workbench.clear(group, child) }
        let sleeper = try #require(output.line().flatMap { pid_t($0) })
        let sum = try #require(output.line())
        try group.freeze()
        #expect(group.waitUntilFrozen(Workbench.limit))
        let charge = try #require(group.charge), swapped = try #require(group.swapped)
        try group.reclaim(.mebibytes(6))
        #expect(try #require(group.charge) < charge - .mebibytes(3))
        #expect(try #require(group.swapped) > swapped + .mebibytes(3))
        try group.thaw()
        kill(sleeper, SIGTERM)
        #expect(output.line() == sum)
    }
}
