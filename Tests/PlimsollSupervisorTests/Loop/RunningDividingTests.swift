import Glibc
import Plimsoll
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// Tests of the memory for caches of real units, divided over their links.
@Suite(.needs(access("/usr/bin/perl", X_OK) == 0, "no perl here that can write to a socket"))
struct RunningDividingTests {
    private let directory = Fixture.Directory()

    /// Returns a unit whose caches hold a mebibyte, and save most of `load` nanoseconds a second with twice as much.
    /// The unit answers each share, and keeps all received messages.
    private func unit(_ name: String, load: Int, worth: String? = nil) -> ServiceUnit {
        let worth = worth ?? "bytes=1048576 room=0 curve=0:\(load),1048576:\(load / 2),2097152:1000"
        let script = """
            socket(my $l, AF_UNIX, SOCK_STREAM, 0); connect($l, sockaddr_un($ENV{PLIMSOLL_SUPERVISOR})) or die $!;
            my $said = 1;
            syswrite($l, "1 hello v=1\\n");
            while (sysread($l, my $t, 4096)) {
                open(my $f, '>>', '\(directory.path)/\(name)'); print $f $t; close $f;
                next unless $t =~ / share /;
                $said++;
                syswrite($l, "$said worth \(worth)\\n");
            }
            sleep 1000
            """
        var unit = ServiceUnit(name: name, origin: .command(["/usr/bin/perl", "-MSocket", "-e", script]))
        (unit.restart, unit.trustsWorth) = (.never, true)
        return unit
    }

    private func heard(_ name: String) -> String {
        (try? GroupText.read("\(directory.path)/\(name)").get()).map { String(decoding: $0, as: UTF8.self) } ?? ""
    }
    private func clear() { for name in RunningFleet.names(in: directory.path) { unlink("\(directory.path)/\(name)") } }

    @Test func `units are asked, and the unit that saves more load time gets memory of the other unit`() async throws {
        let fleet = try RunningFleet([unit("cheap", load: 1_000_000), unit("dear", load: 1_000_000_000)]) { $0.policy.division = .byWorth }
        // The units run before the first reading, as no event follows that reading.
        #expect(await fleet.waits { fleet.report("dear")?.hasLink ?? false && fleet.report("cheap")?.hasLink ?? false })
        fleet.push(0.5)
        func share(_ name: String) -> Int? { fleet.report(name)?.share?.bytes }
        // A report may show a share before the unit has read the message.
        #expect(
            await fleet.waits {
                share("dear") ?? 0 > 1_100_000 && share("cheap") ?? .max < 1_000_000 && heard("dear").contains(" share bytes=")
            })
        #expect(heard("dear").contains(" share of=") && heard("dear").contains(" share bytes="), "\(heard("dear"))")
        let decisions = fleet.decisions("dear")
        #expect(decisions.allSatisfy { $0.kind == .share } && decisions.count >= 2, "\(decisions)")
        #expect(await fleet.stop() && fleet.problems.isEmpty, "\(fleet.problems)")
        clear()
    }

    @Test func `a unit with senseless numbers, or with an invalid curve, does not harm the others`() async throws {
        let units = [
            unit("most", load: 1, worth: "bytes=1152921504606846976 room=1152921504606846976 curve=0:1152921504606846976,1:0"),
            unit("none", load: 1, worth: "bytes=1 room=0 curve=1:2"), unit("honest", load: 1_000_000),
        ]
        let fleet = try RunningFleet(units) { $0.policy.division = .byWorth }
        fleet.push(0.5)
        // The link that breaks the protocol is closed with a reason.
        #expect(await fleet.waits { heard("none").contains("refused because=malformed") && fleet.report("none")?.hasLink == false })
        #expect(await fleet.waits { fleet.report("most")?.worth != nil && fleet.report("honest")?.worth != nil })
        // A claim of more than the kernel charges counts only as the charge: memory is plentiful, so no unit is
        // bounded.
        #expect(fleet.report("most")?.share?.bytes == nil && fleet.report("honest")?.share?.bytes == nil)
        #expect(await fleet.stop())
        clear()
    }
}
