import Glibc
import Plimsoll
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import PlimsollSupervisor

@Suite(.serialized) struct RunningUnitsTests {
    @Test func `a unit whose dependency does not run waits, and the supervisor does not spin meanwhile`() async throws {
        var web = ServiceUnit.shell("web")
        web.dependencies = ["database"]
        let fleet = try RunningFleet([web, ServiceUnit(name: "database", origin: .command(["/nonexistent/database"]))]) {
            $0.policy.grace = .seconds(1)
        }
        // The next try comes only after 800 ms by now.
        #expect(await fleet.waits { fleet.problems.count > 3 && fleet.state("database") == .stopped })
        let before = fleet.supervisor.turns.load(ordering: .relaxed)
        var polls = 0
        #expect(
            await fleet.waits {
                polls += 1
                return polls > 50
            })
        // A few turns for each try, and a busy machine may have time for some tries. A spinning supervisor has
        // thousands of turns.
        #expect(fleet.state("web") == .stopped && fleet.supervisor.turns.load(ordering: .relaxed) - before < 50)
        #expect(await fleet.stop())
    }

    @Test func `a unit waits for a dependency`() async throws {
        var web = ServiceUnit.shell("web")
        web.dependencies = ["database"]
        let fleet = try RunningFleet([web, ServiceUnit(name: "database", origin: .command(["/nonexistent/database"]))])
        #expect(await fleet.waits { fleet.problems.contains { $0.contains("cannot start /nonexistent/database") } })
        #expect(await fleet.waits { fleet.problems.count > 2 })
        #expect(fleet.state("web") == .stopped)
        fleet.supervisor.reload([web, .shell("database")])
        #expect(await fleet.waits { fleet.state("web") == .running })
        let web1 = try #require(fleet.report("web")), database = try #require(fleet.report("database"))
        #expect(database.state == .running && database.since <= web1.since)
        #expect(await fleet.stop())
    }

    @Test(arguments: [ServiceUnit.Restart.onFailure, .always])
    func `a failing unit is started again, each time after a longer pause`(restart: ServiceUnit.Restart) async throws {
        let directory = Fixture.Directory()
        // While memory is not short, units that the supervisor has ended may come back at once.
        let fleet = try RunningFleet([.shell("web", "date +%s%N >> \(directory.path)/log; exit 1") { $0.restart = restart }]) {
            $0.policy.roomHold = .zero
        }
        func times() -> [Int] {
            let text = (try? GroupText.read("\(directory.path)/log").get()) ?? []
            return String(decoding: text, as: UTF8.self).split(separator: "\n").compactMap { Int($0) }
        }
        #expect(await fleet.waits { times().count > 4 })
        #expect(await fleet.stop())
        let seen = times()
        for (index, pause) in [100, 200, 400, 800].enumerated() { #expect(seen[index + 1] - seen[index] >= pause * 1_000_000) }
        unlink("\(directory.path)/log")
    }

    @Test func `a unit that exits with success is not started again, and the unit's children end, too`() async throws {
        let directory = Fixture.Directory()
        func lines(_ name: String) -> [Substring] {
            let text = (try? GroupText.read("\(directory.path)/\(name)").get()) ?? []
            return String(decoding: text, as: UTF8.self).split(separator: "\n")
        }
        defer { for name in ["web", "child", "failing"] { unlink("\(directory.path)/\(name)") } }
        let web = "echo start >> \(directory.path)/web; sleep 1000 & echo $! > \(directory.path)/child; exit 0"
        let fleet = try RunningFleet([
            .shell("web", web) { $0.restart = .onFailure },
            .shell("failing", "echo start >> \(directory.path)/failing; exit 1") { $0.restart = .onFailure },
        ])
        // By then the other unit would have been started again as well.
        #expect(await fleet.waits { fleet.state("web") == .stopped && lines("failing").count > 1 })
        let child = try #require(lines("child").first.flatMap { Int32($0) })
        #expect(await fleet.waits { !RunningFleet.isRunning(child) } && lines("web").count == 1)
        #expect(await fleet.stop() && fleet.problems.allSatisfy { !$0.hasPrefix("web") })
    }

    @Test func `a reload starts, ends, changes in place and restarts units`() async throws {
        let directory = Fixture.Directory()
        func unit(_ name: String, _ more: String = "") -> ServiceUnit { .shell(name, "\(more) echo $$ > \(directory.path)/\(name); exec sleep 1000") }
        func pid(_ name: String) -> Int32? {
            let text = String(decoding: (try? GroupText.read("\(directory.path)/\(name)").get()) ?? [], as: UTF8.self)
            return text.hasSuffix("\n") ? Int32(text.dropLast()) : nil
        }
        let fleet = try RunningFleet([unit("one"), unit("two")])
        #expect(await fleet.waits { pid("one") != nil && pid("two") != nil })
        let one = try #require(pid("one")), two = try #require(pid("two"))

        var changed = unit("one")
        (changed.importance, changed.memoryLimit) = (7, .mebibytes(64))
        fleet.supervisor.reload([changed, unit("three")])
        #expect(await fleet.waits { pid("three") != nil && fleet.report("two") == nil && fleet.report("one")?.importance == 7 })
        #expect(RunningFleet.isRunning(one) && !RunningFleet.isRunning(two))
        if let parent = fleet.supervisor.root.parents[.memory] {
            let limit = try GroupText.read("\(parent)/\(fleet.supervisor.options.prefix)-one/memory.limit_in_bytes").get()
            #expect(GroupText.number(limit) == 64 << 20)
        }

        fleet.supervisor.reload([unit("one", "true;"), unit("three")])
        #expect(await fleet.waits { pid("one").map { $0 != one } ?? false })
        // The unit is removed and added again while the former process is still ending.
        fleet.supervisor.reload([unit("one", "true;")])
        fleet.supervisor.reload([unit("one", "true;"), .shell("three", "echo again > \(directory.path)/three; exec sleep 1000")])
        #expect(
            await fleet.waits { fleet.state("three") == .running && (try? GroupText.read("\(directory.path)/three").get()) == Array("again\n".utf8) })
        #expect(await fleet.stop() && fleet.problems.isEmpty, "\(fleet.problems)")
        for name in ["one", "two", "three"] { unlink("\(directory.path)/\(name)") }
    }

    @Test func `an adopted group is released unchanged`() async throws {
        let root = Workbench.root(), group = try root.make("old")
        let (child, output) = try Workbench.shell("echo ready; exec sleep 1000", in: group)
        defer { Workbench.clear(group, child) }
        #expect(output.line() == "ready")
        try group.setLimits(request: nil, limit: .mebibytes(512))
        let path = try #require((group.unified ?? group.directories.first)?.path)
        let fleet = try RunningFleet([ServiceUnit(name: "database", origin: .group(path))])
        #expect(await fleet.waits { fleet.state("database") == .running })
        #expect(await fleet.stop() && RunningFleet.isRunning(child.pid) && !group.isFrozen)
    }

    @Test func `a group that a reload names just before the stop is released unchanged`() async throws {
        let root = Workbench.root(), groups = [try root.make("former"), try root.make("next")]
        let shells = try groups.map { try Workbench.shell("echo ready; exec sleep 1000", in: $0) }
        defer { for (group, shell) in zip(groups, shells) { Workbench.clear(group, shell.child) } }
        for shell in shells { #expect(shell.output.line() == "ready") }
        let paths = groups.compactMap { ($0.unified ?? $0.directories.first)?.path }
        try #require(paths.count == 2)
        let former = ServiceUnit(name: "database", origin: .group(paths[0])), next = ServiceUnit(name: "database", origin: .group(paths[1]))
        let fleet = try RunningFleet([former])
        #expect(await fleet.waits { fleet.state("database") == .running })
        // One turn takes both requests.
        fleet.supervisor.requests.withLock { requests in
            requests.append(.units([next], nil))
            requests.append(.stop)
        }
        #expect(await fleet.stop() && fleet.problems.isEmpty, "\(fleet.problems)")
        #expect(shells.allSatisfy { RunningFleet.isRunning($0.child.pid) } && groups.allSatisfy { !$0.isFrozen })
    }

    @Test func `an adopted process is released and runs on`() async throws {
        let (child, output) = try Workbench.shell("echo ready; exec sleep 1000", in: nil)
        #expect(output.line() == "ready")
        let fleet = try RunningFleet([ServiceUnit(name: "old", origin: .process(child.pid))])
        #expect(await fleet.waits { fleet.state("old") == .running })
        _ = await fleet.stop()
        #expect(fleet.isOver && fleet.problems.isEmpty && RunningFleet.isRunning(child.pid), "\(fleet.problems)")
        // The process stays in the group in which the supervisor has put the process.
        Workbench.clear(try fleet.supervisor.root.make("old"), child)
        #expect(fleet.hasNoGroups)
    }

    @Test func `a unit that does not end on request is killed at the deadline`() async throws {
        let directory = Fixture.Directory()
        let fleet = try RunningFleet([.shell("web", "trap '' TERM; echo > \(directory.path)/log; while :; do sleep 1000; done")])
        #expect(await fleet.waits { access("\(directory.path)/log", F_OK) == 0 && fleet.state("web") == .running })
        #expect(await fleet.stop() && fleet.problems.isEmpty, "\(fleet.problems)")
        unlink("\(directory.path)/log")
    }

    @Test(.needs(access("/usr/bin/perl", X_OK) == 0, "no perl here that can write to a socket"))
    func `K35 a unit whose watchdog runs out is killed and started again`() async throws {
        let say = #"socket(S, AF_UNIX, SOCK_DGRAM, 0); send(S, "WATCHDOG_USEC=300000", 0, sockaddr_un($ENV{NOTIFY_SOCKET})); sleep 1000"#
        var web = ServiceUnit(name: "web", origin: .command(["/usr/bin/perl", "-MSocket", "-e", say]))
        web.restart = .onFailure
        let fleet = try RunningFleet([web])
        func process() -> Int32? { Int32(fleet.text("web.process").prefix { $0 != " " }) }
        #expect(await fleet.waits { process() != nil })
        let first = process()
        #expect(await fleet.waits { process().map { $0 != first } ?? false })
        #expect(fleet.problems.first == "web: killed: it did not report for \(Duration.milliseconds(300)) that it was alive (WATCHDOG=1)")
        #expect(await fleet.stop())
    }

    @Test func `K38 units left by one supervisor run on, and the next supervisor knows them`() async throws {
        let unit = ServiceUnit.shell("web", "exec sleep 1000")
        let first = try RunningFleet([unit]) { $0.leavesUnits = true }
        #expect(await first.waits { first.state("web") == .running && !first.text("web.process").isEmpty })
        let pid = try #require(Int32(first.text("web.process").prefix { $0 != " " }))
        first.supervisor.stop()
        #expect(await first.waits { first.isOver } && RunningFleet.isRunning(pid))
        let next = try RunningFleet([unit], after: first)
        #expect(await next.waits { next.state("web") == .running })
        #expect(Int32(next.text("web.process").prefix { $0 != " " }) == pid && RunningFleet.isRunning(pid))
        #expect(await next.stop() && !RunningFleet.isRunning(pid))
        // The process was a child of the first supervisor, so of this process.
        waitpid(pid, nil, 0)
    }

    @Test(.needs(!Workbench.found.parents.isEmpty, "no groups here"))
    func `a unit whose main process ended while no supervisor ran is started again, once the rest of the unit has ended`() async throws {
        let directory = Fixture.Directory(), file = "\(directory.path)/rest"
        let unit = ServiceUnit.shell("web", "sleep 1000 & echo $! > \(file); exec sleep 1000")
        func rest() -> Int32? {
            let text = String(decoding: (try? GroupText.read(file).get()) ?? [], as: UTF8.self)
            return text.hasSuffix("\n") ? Int32(text.dropLast()) : nil
        }
        let first = try RunningFleet([unit]) { $0.leavesUnits = true }
        #expect(await first.waits { first.process("web") != nil && rest() != nil })
        let main = try #require(first.process("web")), left = try #require(rest())
        first.supervisor.stop()
        #expect(await first.waits { first.isOver })
        // The process was a child of the first supervisor, so of this process.
        kill(main, SIGKILL)
        waitpid(main, nil, 0)
        #expect(RunningFleet.isRunning(left))
        let next = try RunningFleet([unit], after: first)
        #expect(await next.waits { next.process("web").map { $0 != main && RunningFleet.isRunning($0) } ?? false })
        #expect(!RunningFleet.isRunning(left))
        #expect(await next.stop() && next.problems.isEmpty, "\(next.problems)")
        unlink(file)
    }

    @Test func `a fork storm and a hostile name affect no other unit`() async throws {
        let directory = Fixture.Directory(), hostile = "\(directory.path)/) R 1 (x"
        let copy = "cp /bin/sleep '\(hostile)'; echo ready > \(directory.path)/log; exec '\(hostile)' 1000"
        let fleet = try RunningFleet([.shell("storm", Workbench.storm), .shell("hostile", copy), .shell("web")])
        #expect(await fleet.waits { access("\(directory.path)/log", F_OK) == 0 && fleet.supervisor.reports.count { $0.state == .running } == 3 })
        fleet.supervisor.reload([.shell("web")])
        #expect(await fleet.waits { fleet.report("storm") == nil && fleet.report("hostile") == nil })
        #expect(fleet.state("web") == .running)
        #expect(await fleet.stop() && fleet.problems.isEmpty, "\(fleet.problems)")
        unlink(hostile)
        unlink("\(directory.path)/log")
    }

    @Test func `at the stop, a unit is asked to end after the dependent units`() async throws {
        let directory = Fixture.Directory(), log = "\(directory.path)/log"
        func unit(_ name: String, _ pause: String, _ needs: [String]) -> ServiceUnit {
            .shell(name, "trap '\(pause) echo \(name) >> \(log); exit 0' TERM; echo > \(directory.path)/\(name); while :; do sleep 1000 & wait; done")
            {
                $0.dependencies = needs
            }
        }
        let fleet = try RunningFleet([unit("db", "", []), unit("cache", "", ["db"]), unit("web", "sleep 0.1;", ["cache", "db"])]) {
            // A third of this time for each unit, as a busy machine needs.
            $0.policy.grace = .seconds(90)
        }
        // Each file shows that the unit's trap is set. A unit runs, and the next one starts, before that.
        #expect(
            await fleet.waits {
                ["db", "cache", "web"].allSatisfy { access("\(directory.path)/\($0)", F_OK) == 0 } && fleet.state("web") == .running
            })
        #expect(await fleet.stop() && fleet.problems.isEmpty, "\(fleet.problems)")
        #expect(String(decoding: (try? GroupText.read(log).get()) ?? [], as: UTF8.self) == "web\ncache\ndb\n")
        for name in ["db", "cache", "web", "log"] { unlink("\(directory.path)/\(name)") }
    }

    @Test func `K38 a former supervisor's process without a unit in the file ends, and no other process does`() async throws {
        let first = try RunningFleet([.shell("web"), .shell("old"), .shell("idle", "exit 0")]) { $0.leavesUnits = true }
        func pid(_ fleet: RunningFleet, _ name: String) -> Int32? { Int32(fleet.text("\(name).process").prefix { $0 != " " }) }
        #expect(await first.waits { first.state("web") == .running && first.state("old") == .running && first.state("idle") == .stopped })
        let web = try #require(pid(first, "web")), old = try #require(pid(first, "old"))
        first.supervisor.stop()
        #expect(await first.waits { first.isOver })
        // The stranger's name begins like the names of the units, but belongs to another owner.
        let root = GroupRoot(prefix: first.supervisor.options.prefix), group = try root.make("stranger")
        let (stranger, output) = try Workbench.shell("echo ready; exec sleep 1000", in: group)
        #expect(output.line() == "ready")
        let next = try RunningFleet([.shell("web")], after: first)
        #expect(await next.waits { !RunningFleet.isRunning(old) && next.report("old") == nil && next.report("idle") == nil })
        #expect(next.problems == ["old: ended: left by an earlier supervisor, and no command of that name is in the units file"])
        // A note is removed after its unit's groups.
        #expect(await next.waits { next.text("old.process").isEmpty && next.text("idle.process").isEmpty })
        #expect(pid(next, "web") == web)
        #expect(RunningFleet.isRunning(stranger.pid) && !group.isFrozen)
        Workbench.clear(group, stranger)
        #expect(await next.stop())
        // The processes were children of the first supervisor, so of this process.
        for pid in [web, old] { waitpid(pid, nil, 0) }
    }

    @Test func `a former supervisor's process that could not be taken over ends once the units file no longer names the unit`() async throws {
        let first = try RunningFleet([.shell("web")]) { $0.leavesUnits = true }
        #expect(await first.waits { first.process("web") != nil })
        let web = try #require(first.process("web"))
        first.supervisor.stop()
        #expect(await first.waits { first.isOver })
        // A file takes the path of one of the unit's sockets.
        let path = "\(first.directory.path)/web.notify"
        #expect(await first.waits { access(path, F_OK) != 0 })
        close(open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0o600))
        let next = try RunningFleet([.shell("web")], after: first)
        #expect(await next.waits { next.problems.contains { $0.hasPrefix("web: ") } })
        next.supervisor.reload([.shell("base")])
        #expect(await next.waits { next.state("base") == .running })
        #expect(RunningFleet.isRunning(web) && next.report("web") == nil)
        unlink(path)
        #expect(await next.waits { !RunningFleet.isRunning(web) && next.text("web.process").isEmpty })
        #expect(await next.stop(), "\(next.problems)")
        // The process was a child of the first supervisor, so of this process.
        waitpid(web, nil, 0)
    }

    @Test(.needs(!Workbench.found.parents.isEmpty, "no groups here"), arguments: [false, true])
    func `K38 a former supervisor's process ends before a process or group with the unit's name is taken up`(isGroup: Bool) async throws {
        let first = try RunningFleet([.shell("web")]) { $0.leavesUnits = true }
        #expect(await first.waits { first.process("web") != nil })
        let old = try #require(first.process("web"))
        first.supervisor.stop()
        #expect(await first.waits { first.isOver })
        let group = try Workbench.root().make("database"), path = try #require((group.unified ?? group.directories.first)?.path)
        let (child, output) = try Workbench.shell("echo ready; exec sleep 1000", in: group)
        defer { Workbench.clear(group, child) }
        defer { child.signal(SIGKILL) }
        #expect(output.line() == "ready")
        let unit = ServiceUnit(name: "web", origin: isGroup ? .group(path) : .process(child.pid))
        let next = try RunningFleet([unit], after: first)
        #expect(await next.waits { !RunningFleet.isRunning(old) && next.state("web") == .running })
        #expect(next.problems == ["web: ended: left by an earlier supervisor, and no command of that name is in the units file"])
        #expect(next.text("web.process").isEmpty && RunningFleet.isRunning(child.pid))
        next.supervisor.stop()
        #expect(await next.waits { next.isOver } && RunningFleet.isRunning(child.pid))
        // The process was a child of the first supervisor, so of this process.
        waitpid(old, nil, 0)
        next.clear()
        // A released process keeps the group into which the supervisor has put the process.
        if !isGroup { Workbench.clear(try next.supervisor.root.make("web"), child) }
        #expect(next.hasNoGroups)
    }

    @Test(.needs(!Workbench.found.parents.isEmpty, "no groups here"))
    func `a unit that was taken over without a known main process is started again after the end`() async throws {
        let unit = ServiceUnit.shell("web") { $0.restart = .onFailure }
        let first = try RunningFleet([unit]) { $0.leavesUnits = true }
        #expect(await first.waits { first.process("web") != nil })
        let main = try #require(first.process("web"))
        first.supervisor.stop()
        #expect(await first.waits { first.isOver })
        // As if the first supervisor had been killed after the start and before the note of the process.
        let note = ProcessNote(first.directory.path, "web"), group = try UnitGroup("web", note.groups, own: OwnGroups())
        #expect(note.write(nil, group) == nil && note.read() == nil)
        let next = try RunningFleet([unit], after: first)
        #expect(await next.waits { next.state("web") == .running })
        // The process was a child of the first supervisor, so of this process.
        kill(main, SIGKILL)
        waitpid(main, nil, 0)
        #expect(await next.waits { next.process("web").map { $0 != main && RunningFleet.isRunning($0) } ?? false })
        #expect(await next.stop() && next.problems.isEmpty, "\(next.problems)")
    }

    @Test func `units run at the usual nice, at any nice of the supervisor`() async throws {
        let directory = Fixture.Directory(), file = "\(directory.path)/nice"
        let fleet = try RunningFleet([.shell("web", "nice > \(file); exec sleep 1000")])
        #expect(await fleet.waits { ((try? GroupText.read(file).get()) ?? []).last == UInt8(ascii: "\n") })
        #expect(try GroupText.number(GroupText.read(file).get()) == 0)
        let nice = try #require(fleet.supervisor.capabilities["nice"]), weight = try #require(fleet.supervisor.capabilities["processor weight"])
        #expect(nice.isLive || nice.detail.contains("set Nice=-5 in its unit"), "\(nice.detail)")
        #expect(!weight.detail.isEmpty)
        #expect(await fleet.stop())
        unlink(file)
    }
}
