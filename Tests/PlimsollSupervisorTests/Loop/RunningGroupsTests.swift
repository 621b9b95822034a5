import CPlimsollSupervisor
import CSystemCallFaults
import Glibc
import Plimsoll
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// Tests of units whose groups other programs change, and of the units' shares.
@Suite(.serialized) struct RunningGroupsTests {
    /// Returns the text of a file of a unit's group, in the hierarchy that has the file.
    private func text(_ fleet: RunningFleet, _ unit: String, _ file: String) -> String? {
        fleet.supervisor.root.parents.values.lazy.compactMap { parent in
            try? GroupText.read("\(parent)/\(fleet.supervisor.options.prefix)-\(unit)/\(file)").get()
        }.first.map { String(decoding: $0, as: UTF8.self) }
    }

    @Test(.needs(Workbench.hasFreezer, "no version 2 groups here"))
    func `a unit whose group was removed is started again in another group`() async throws {
        let directory = Fixture.Directory(), go = "\(directory.path)/go", ran = "\(directory.path)/ran"
        let fleet = try RunningFleet([
            .shell("web", "[ -e \(go) ] || { : > \(ran); exit 1; }; exec sleep 1000") { $0.restart = .onFailure }
        ])
        let paths = fleet.supervisor.root.parents.values.map { "\($0)/\(fleet.supervisor.options.prefix)-web" }
        #expect(await fleet.waits { access(ran, F_OK) == 0 } && !paths.isEmpty)
        // Removes the groups between two of the unit's processes.
        for path in paths { #expect(await fleet.waits { rmdir(path) == 0 }) }
        close(open(go, O_CREAT | O_WRONLY, 0o600))
        // The pid of the ended process is known for a while. The process that runs on is in all groups.
        func isInAll() -> Bool {
            guard let pid = Int32(fleet.text("web.process").prefix { $0 != " " }) else { return false }
            return paths.allSatisfy { path in
                guard case .success(let text) = GroupText.read("\(path)/cgroup.procs") else { return false }
                return GroupText.pids(text).contains(pid)
            }
        }
        #expect(await fleet.waits { fleet.state("web") == .running && isInAll() })
        #expect(await fleet.stop())
        for path in [go, ran] { unlink(path) }
    }

    @Test(.needs(!Workbench.found.parents.isEmpty, "no groups here"))
    func `a group that the owner has made again is taken up, and dependent units start again`() async throws {
        let root = Workbench.root(), former = try root.make("old")
        let path = try #require((former.unified ?? former.directories.first)?.path)
        let (child, output) = try Workbench.shell("echo ready; exec sleep 1000", in: former)
        #expect(output.line() == "ready")
        let web = ServiceUnit.shell("web") { ($0.restart, $0.dependencies) = (.always, ["database"]) }
        let fleet = try RunningFleet([ServiceUnit(name: "database", origin: .group(path)), web])
        #expect(await fleet.waits { fleet.state("database") == .running && fleet.process("web") != nil })
        let first = try #require(fleet.process("web"))
        // As systemd does: the group is removed with the last process, and made again with the next one.
        Workbench.clear(former, child)
        #expect(await fleet.waits { fleet.state("database") != .running })
        let next = try root.make("old")
        let (successor, ready) = try Workbench.shell("echo ready; exec sleep 1000", in: next)
        defer { Workbench.clear(next, successor) }
        #expect(ready.line() == "ready")
        #expect(await fleet.waits { fleet.state("database") == .running })
        kill(first, SIGKILL)
        #expect(await fleet.waits { fleet.process("web").map { $0 != first && RunningFleet.isRunning($0) } ?? false })
        #expect(await fleet.stop() && RunningFleet.isRunning(successor.pid) && !next.isFrozen)
    }

    @Test(.needs(Workbench.hasFreezer, "no version 2 groups here"))
    func `K38 a group of another prefix is not taken, and the processes there run on`() async throws {
        let prefix = Workbench.prefix(), other = GroupRoot(prefix: prefix + "-a"), group = try other.make("b")
        let (child, output) = try Workbench.shell("echo ready; exec sleep 1000", in: group)
        defer { Workbench.clear(group, child) }
        #expect(output.line() == "ready")
        let fleet = try RunningFleet([.shell("a-b"), .shell("web")]) { $0.prefix = prefix }
        #expect(await fleet.waits { fleet.state("web") == .running && !fleet.problems.isEmpty })
        #expect(
            fleet.problems.count == 1
                && fleet.problems[0].contains("the group belongs to another supervisor, and holds a process; choose another prefix"),
            "\(fleet.problems)")
        _ = await fleet.stop()
        #expect(fleet.isOver && RunningFleet.isRunning(child.pid) && !group.isFrozen)
    }

    @Test func `a subreaping supervisor reaps the units' orphans, and takes no status from another waiter`() async {
        await #expect(processExitsWith: .success) {
            precondition(become_subreaper())
            let directory = Fixture.Directory(), done = "\(directory.path)/done"
            // A process of this process and session, and of no unit: the process stays for its waiter.
            var mine: pid_t = 0
            var arguments: [UnsafeMutablePointer<CChar>?] = [strdup("/bin/true"), nil]
            precondition(posix_spawn(&mine, "/bin/true", nil, nil, &arguments, nil) == 0)
            free(arguments[0])
            let script =
                "i=0; while [ $i -lt 30 ]; do (sh -c 'exit 3' &); i=$((i+1)); done; echo > \(done); exec sleep 1000"
            let fleet = try RunningFleet([
                .shell("web", script),
                .shell("short", "echo x >> \(directory.path)/short; exit 0") { $0.restart = .onFailure },
            ])
            #expect(await fleet.waits { access(done, F_OK) == 0 && fleet.state("web") == .running })
            func zombies() -> [Int32] {
                ProcessTable.all().filter { $0.parent == getpid() && $0.isOver && $0.pid != mine }.map(\.pid)
            }
            #expect(await fleet.waits { zombies().isEmpty })
            var status: Int32 = -1
            #expect(waitpid(mine, &status, 0) == mine && status == 0)
            #expect(await fleet.stop())
            // With its status taken by another waiter, the end would have counted as a failure.
            #expect(String(decoding: try GroupText.read("\(directory.path)/short").get(), as: UTF8.self) == "x\n")
            for name in ["done", "short"] { unlink("\(directory.path)/\(name)") }
        }
    }

    /// Returns a unit that reports to its supervisor as a link does: in the background, and in the foreground once the
    /// file exists.
    private func linked(_ name: String, _ front: String, _ change: (inout ServiceUnit) -> Void = { _ in })
        -> ServiceUnit
    {
        let script = """
            socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un($ENV{PLIMSOLL_SUPERVISOR})) or die $!;
            syswrite(S, "1 hello v=1\\n2 state is=background\\n");
            select(undef, undef, undef, 0.01) until -e '\(front)'; syswrite(S, "3 state is=foreground\\n"); sleep 1000
            """
        var unit = ServiceUnit(name: name, origin: .command(["/usr/bin/perl", "-MSocket", "-e", script]))
        unit.restart = .never
        change(&unit)
        return unit
    }

    @Test(
        .needs(access("/usr/bin/perl", X_OK) == 0, "no perl here that can write to a socket"),
        .needs(Workbench.found.capabilities["weights"]!.isLive, "no processor weights here"))
    func `C37 a background unit gets the background shares, and the earlier shares again in the foreground`() async throws {
        let directory = Fixture.Directory(), front = "\(directory.path)/front"
        let fleet = try RunningFleet([linked("web", front), .shell("other")])
        let isNew = Workbench.found.capabilities["weights"]!.detail.hasSuffix("cpu.weight"),
            file = isNew ? "cpu.weight" : "cpu.shares"
        let (own, behind) = isNew ? ("100\n", "25\n") : ("1024\n", "256\n")
        #expect(await fleet.waits { fleet.report("web")?.backgroundSince != nil && text(fleet, "web", file) == behind })
        #expect(text(fleet, "other", file) == own)
        close(open(front, O_CREAT | O_WRONLY, 0o600))
        #expect(await fleet.waits { text(fleet, "web", file) == own })
        #expect(await fleet.stop() && fleet.problems.isEmpty, "\(fleet.problems)")
        unlink(front)
    }

    @Test(
        .needs(access("/usr/bin/perl", X_OK) == 0, "no perl here that can write to a socket"),
        .needs(Workbench.found.capabilities["weights"]!.isLive, "no processor weights here"))
    func `C37 a process released while in the background has the shares of the role again, and no lower limit`() async throws {
        let directory = Fixture.Directory(), socket = "\(directory.path)/supervisor"
        let script = """
            select(undef, undef, undef, 0.01) until -S '\(socket)'; socket(S, AF_UNIX, SOCK_STREAM, 0);
            connect(S, sockaddr_un('\(socket)')) or die $!; syswrite(S, "1 hello v=1\\n2 state is=background\\n"); sleep 1000
            """
        var launch = Child.Launch(["/usr/bin/perl", "-MSocket", "-e", script])
        launch.environment = [OrphanCleanup.variable: OrphanCleanup.mark]
        let child = try Child.start(launch)
        let fleet = try RunningFleet([ServiceUnit(name: "old", origin: .process(child.pid))]) {
            $0.policy.leaveTime = .seconds(3600)
        }
        #expect(await fleet.waits { fleet.state("old") == .running })
        #expect(symlink("\(fleet.directory.path)/supervisor", socket) == 0)
        let isNew = Workbench.found.capabilities["weights"]!.detail.hasSuffix("cpu.weight"),
            file = isNew ? "cpu.weight" : "cpu.shares"
        let (own, behind) = isNew ? ("100\n", "25\n") : ("1024\n", "256\n")
        #expect(await fleet.waits { text(fleet, "old", file) == behind })
        // On version 2, a unit sent to the background at critical may not grow.
        fleet.push()
        #expect(await fleet.waits { fleet.records.contains { $0.action == .background && $0.result != nil } })
        fleet.supervisor.reload([])
        #expect(await fleet.waits { fleet.report("old") == nil })
        #expect(text(fleet, "old", file) == own && RunningFleet.isRunning(child.pid))
        #expect((text(fleet, "old", "memory.high") ?? "max\n") == "max\n")
        _ = await fleet.stop()
        #expect(fleet.isOver && fleet.problems.isEmpty, "\(fleet.problems)")
        Workbench.clear(try fleet.supervisor.root.make("old"), child)
        #expect(fleet.hasNoGroups)
        unlink(socket)
    }

    @Test(
        .needs(access("/usr/bin/perl", X_OK) == 0, "no perl here that can write to a socket"),
        .needs(Workbench.found.capabilities["throttle"]!.isLive, "no processor quota here"))
    func `C36 a unit over the allowance is throttled, then ended, and the group is unthrottled`() async throws {
        let directory = Fixture.Directory()
        let job = linked("job", "\(directory.path)/never") {
            ($0.role, $0.suspension, $0.allowance) = (.background, .never, .milliseconds(50))
        }
        let fleet = try RunningFleet([.shell("web"), job]) {
            ($0.policy.throttleGrace, $0.policy.leaveTime) = (.milliseconds(300), .milliseconds(50))
        }
        let isNew = Workbench.found.capabilities["throttle"]!.detail.hasSuffix("cpu.max"),
            file = isNew ? "cpu.max" : "cpu.cfs_quota_us"
        #expect(await fleet.waits { fleet.report("job")?.backgroundSince != nil })
        let free = text(fleet, "job", file), seen = Mutex<[String]>([])
        fleet.supervisor.onRecord { record in
            guard record.action == .throttle(true), let result = record.result else { return }
            let slow = text(fleet, "job", file) ?? "none", note = fleet.text("job.process")
            seen.withLock { $0 = ["\(result.failure ?? "done")", slow, note.contains("\nlift\t") ? "noted" : note] }
        }
        fleet.push()
        #expect(await fleet.waits { fleet.state("job") == .stopped })
        #expect(seen.withLock { $0 } == ["done", isNew ? "10000 100000\n" : "10000\n", "noted"])
        #expect(fleet.decisions("job").contains { $0.kind == .end })
        #expect(free != nil && text(fleet, "job", file) == free && !fleet.text("job.process").contains("lift"))
        #expect(await fleet.stop() && fleet.state("web") != .suspended)
    }

    @Test(
        .needs(access("/usr/bin/perl", X_OK) == 0, "no perl here that can write to a socket"),
        .needs(Workbench.found.capabilities["throttle"]!.isLive, "no processor quota here"))
    func `C36 T33 a throttled unit that is asked to end is not slow while it saves`() async throws {
        let directory = Fixture.Directory(), saved = "\(directory.path)/saved"
        let script = """
            $SIG{TERM} = 'IGNORE';
            socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un($ENV{PLIMSOLL_SUPERVISOR})) or die $!;
            syswrite(S, "1 hello v=1\\n2 state is=background\\n"); select(undef, undef, undef, 0.01) until -e '\(saved)'
            """
        var job = ServiceUnit(name: "job", origin: .command(["/usr/bin/perl", "-MSocket", "-e", script]))
        (job.restart, job.role, job.suspension, job.allowance) = (.never, .background, .never, .milliseconds(50))
        let fleet = try RunningFleet([.shell("web"), job]) {
            ($0.policy.throttleGrace, $0.policy.leaveTime) = (.milliseconds(300), .milliseconds(50))
            // The unit ends by the test's file, and not by the time.
            $0.policy.grace = .seconds(3600)
        }
        let isNew = Workbench.found.capabilities["throttle"]!.detail.hasSuffix("cpu.max"),
            file = isNew ? "cpu.max" : "cpu.cfs_quota_us"
        #expect(await fleet.waits { fleet.report("job")?.backgroundSince != nil })
        let free = text(fleet, "job", file)
        fleet.push()
        #expect(await fleet.waits { fleet.state("job") == .ending && text(fleet, "job", file) == free })
        let isThrottled = fleet.records.contains { record in
            record.action == .throttle(true) && record.result.map { $0.failure == nil } ?? false
        }
        #expect(isThrottled && free != nil && !fleet.text("job.process").contains("lift"))
        close(open(saved, O_CREAT | O_WRONLY, 0o600))
        #expect(await fleet.waits { fleet.state("job") == .stopped })
        #expect(await fleet.stop())
        unlink(saved)
    }

    /// The virtual machine's situation `systemd-unit` checks the same under systemd itself.
    @Test(.needs(Fixture.text(of: "docs/operations/plimsoll.service") != nil, "the sources are not at hand"))
    func `K25 K42 K43 the systemd unit has the settings that keep kernel kills and the supervisor's end off other units`() throws {
        let unit = try #require(Fixture.text(of: "docs/operations/plimsoll.service")).split(separator: "\n")
        // A group also counts the kernel's kills in the groups below.
        for line in [
            "OOMPolicy=continue", "KillMode=process", "RuntimeDirectoryPreserve=yes", "Delegate=yes",
            "DelegateSubgroup=plimsoll-supervisor",
        ] {
            #expect(unit.contains(Substring(line)), "\(line)")
        }
    }
}
