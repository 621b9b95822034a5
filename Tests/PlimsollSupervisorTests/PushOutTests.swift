import Glibc
import Plimsoll
import Testing

@testable import PlimsollSupervisor

@Suite(.serialized) struct PushOutTests {
    @Test(.enabled(if: Workbench.hasSwap && Workbench.hasFreezer, "no swap, memory.reclaim or freezer here"))
    func `T31 a unit that stands still is pushed out to swap, and has its memory when it runs again`() throws {
        let group = try Workbench.root().make("web")
        // Eight million letters that the shell keeps, of which no page is like another. While it waits it hears signals.
        let (child, output) = try Workbench.shell(
            """
            trap told=1 USR1; text=$(head -c 6000000 /dev/urandom | base64); echo "$text" | md5sum
            sleep 1000 & while [ -z "$told" ]; do wait; done; echo "$text" | md5sum
            """, in: group)
        defer { Workbench.clear(group, child) }
        let sum = try #require(output.line())
        try group.freeze()
        #expect(group.waitUntilFrozen(Workbench.limit))
        let charge = try #require(group.charge), swapped = try #require(group.swapped)
        let pushed = try group.pushOut(.mebibytes(6))
        #expect(pushed.bytes > .mebibytes(3))
        #expect(try #require(group.charge) < charge - .mebibytes(3))
        #expect(try #require(group.swapped) > swapped + .mebibytes(3))
        try group.thaw()
        child.signal(SIGUSR1)
        #expect(output.line() == sum)
    }
}
