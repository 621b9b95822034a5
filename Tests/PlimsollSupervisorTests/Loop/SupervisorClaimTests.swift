import CPlimsollSupervisor
import Glibc
import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// Tests that only one supervisor has a directory and a prefix, and that a dry run beside a supervisor changes nothing.
@Suite(.serialized) struct SupervisorClaimTests {
    private func error(_ body: () throws -> Void) -> String? {
        do {
            try body()
            return nil
        } catch { return "\(error)" }
    }

    @Test func `a second supervisor of a directory is refused with the pid of the first supervisor`() async throws {
        let first = try RunningFleet([.shell("web")])
        #expect(await first.waits { first.state("web") == .running })
        let pid = first.text("web.process")
        var options = Supervisor.Options(directory: first.directory.path)
        options.prefix = Workbench.prefix()
        let text = try #require(
            error { _ = try Supervisor([.shell("web")], options, source: ScriptedPressureSource()) })
        #expect(
            text.contains("cannot use the directory \(first.directory.path) because another supervisor does: process \(getpid());"),
            "\(text)")
        #expect(first.state("web") == .running && first.text("web.process") == pid)
        #expect(
            access("\(first.directory.path)/web.pressure", F_OK) == 0
                || !RunningFleet.names(in: first.directory.path).isEmpty)
        #expect(await first.stop() && first.problems.isEmpty, "\(first.problems)")
    }

    @Test func `a second supervisor of a prefix is refused, with any directory`() async throws {
        let first = try RunningFleet([.shell("web")])
        #expect(await first.waits { first.state("web") == .running })
        guard !first.supervisor.root.parents.isEmpty else { return #expect(await first.stop()) }
        let other = Fixture.Directory()
        var options = Supervisor.Options(directory: other.path)
        options.prefix = first.supervisor.options.prefix
        let text = try #require(
            error { _ = try Supervisor([.shell("web")], options, source: ScriptedPressureSource()) })
        #expect(
            text.contains("cannot use the prefix \(options.prefix) in ")
                && text.contains("process \(getpid());"), "\(text)")
        #expect(first.state("web") == .running)
        #expect(await first.stop() && first.problems.isEmpty, "\(first.problems)")
        // Nothing is left of the first and the refused supervisor, and another supervisor may take the directory and
        // the prefix now.
        for parent in first.supervisor.root.parents.values {
            #expect(access("\(parent)/\(options.prefix).lock", F_OK) != 0)
        }
        #expect(error { _ = try Supervisor([.shell("web")], options, source: ScriptedPressureSource()) } == nil)
        unlink("\(other.path)/supervisor.lock")
    }

    @Test func `a claim in another process is refused with the pid of that process`() async throws {
        let directory = Fixture.Directory(), prefix = Workbench.prefix(), output = Output()
        defer { unlink("\(directory.path)/supervisor.lock") }
        let held = try SupervisorClaim(directory: directory.path)
        try held.claim(prefix, in: Workbench.found.parents.values)
        let (path, parent, writing) = (
            directory.path, Workbench.found.parents.values.sorted().first ?? "", output.write
        )
        await #expect(processExitsWith: .success) {
            [path = path as String, parent = parent as String, prefix = prefix as String, holder = getpid() as Int32] in
            #expect { _ = try SupervisorClaim(directory: path) } throws: { "\($0)".contains("process \(holder);") }
            let other = Fixture.Directory()
            let claim = try SupervisorClaim(directory: other.path)
            if !parent.isEmpty {
                #expect { try claim.claim(prefix, in: [parent]) } throws: { "\($0)".contains("process \(holder);") }
            }
            unlink("\(other.path)/supervisor.lock")
        }
        withExtendedLifetime((held, writing)) {}
    }

    @Test func `T32 the next supervisor waits for units that a killed supervisor's guard has not thawed yet`() throws {
        let directory = Fixture.Directory(), path = "\(directory.path)/lock"
        defer { unlink(path) }
        let file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600), next = open(path, O_RDWR | O_CLOEXEC)
        defer { close(next) }
        #expect(flock(file, LOCK_EX | LOCK_NB) == 0)
        var guardian: Guard? = try Guard(keeping: [file], patience: .seconds(2))
        // After one answer all descriptors of the guard are in place.
        let child = try Child.start(.init(["/bin/sleep", "1000"]))
        defer {
            child.signal(SIGKILL)
            child.waitForEnd()
        }
        try guardian!.watch(child)
        guardian!.forget(child)
        let process = try Child.adopt(guardian!.pid)
        process.signal(SIGSTOP)
        close(file)
        guardian = nil
        #expect(flock(next, LOCK_EX | LOCK_NB) != 0)
        process.signal(SIGCONT)
        #expect(process.waitForEnd(within: Workbench.limit) != nil)
        // A child that another test is starting has a copy of the locked file until the child executes its program.
        #expect(blockUntil("the lock is free") { flock(next, LOCK_EX | LOCK_NB) == 0 })
    }

    @Test func `a dry run beside a supervisor sees the units, and touches no unit during the run and at the end`() async throws {
        let directory = Fixture.Directory(), log = "\(directory.path)/log"
        let web = ServiceUnit.shell(
            "web", "trap 'echo asked >> \(log)' TERM CONT; echo ready >> \(log); while :; do sleep 1000 & wait; done")
        let live = try RunningFleet([web, .shell("other")]) { $0.policy.grace = .milliseconds(200) }
        #expect(
            await live.waits {
                (try? GroupText.read(log).get()) == Array("ready\n".utf8) && live.state("web") == .running
                    && live.state("other") == .running
            })
        let before = RunningFleet.names(in: live.directory.path).sorted(), note = live.text("web.process")
        let path = try #require(
            live.supervisor.root.parents.values.sorted().first.map { "\($0)/\(live.supervisor.options.prefix)-web" })
        let frozen = live.group("web").map { "\($0)/cgroup.freeze" }
        if let frozen { #expect(GroupText.write("1", to: frozen) == nil) }

        var never = ServiceUnit.shell("never", "echo started > \(directory.path)/started")
        never.restart = .always
        let dry = try RunningFleet([web, never], after: live) {
            $0.policy.isDryRun = true
            $0.policy.grace = .milliseconds(200)
        }
        #expect(
            await dry.waits {
                dry.state("web") == (frozen == nil ? .running : .suspended) && dry.state("never") == .stopped
            })
        #expect(
            dry.problems.sorted() == [
                "never: not running, and a dry run beside a supervisor starts no unit",
                "other: started by a supervisor and not in this file; a dry run leaves the unit unchanged",
            ])
        dry.push()
        #expect(await dry.waits { !dry.decisions("web").isEmpty })
        dry.supervisor.stop()
        #expect(await dry.waits { dry.isOver })

        #expect(live.state("web") == .running && live.text("web.process") == note)
        #expect(RunningFleet.names(in: live.directory.path).sorted() == before)
        #expect(access(path, F_OK) == 0 && access("\(directory.path)/started", F_OK) != 0)
        if let frozen {
            #expect(GroupText.number((try? GroupText.read(frozen).get()) ?? []) == 1)
            #expect(GroupText.write("0", to: frozen) == nil)
        }
        #expect(String(decoding: (try? GroupText.read(log).get()) ?? [], as: UTF8.self) == "ready\n")
        #expect(await live.stop() && live.problems.isEmpty, "\(live.problems)")
        unlink(log)
    }
}
