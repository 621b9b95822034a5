import Glibc
import PlimsollTesting
import Synchronization
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle
@testable import PlimsollLinux

/// Tests of files of this machine, written as programs, package managers and Kubernetes write files.
@Suite(.serialized, .timeLimit(.minutes(5))) struct EnvironmentFileTests {
    let scratch = Scratch()
    let manager = ResourceManager(source: LinuxPressureSource())

    /// Reads changes until the file has `size` bytes, or is absent for `nil`: on a loaded machine, a writer may be seen
    /// between two steps.
    private func expect(_ size: Int?, _ reader: inout EnvironmentChanges.Iterator, _ path: String) async {
        while let change = await reader.next() {
            // The machine's clock or date may change meanwhile.
            guard case .file = change.kind else { continue }
            #expect(change.kind == .file(path) && change.isNet)
            if change.to == .absent ? size == nil : change.to?.version?.size == size { return }
        }
    }

    @Test func `C66 a file that is rewritten, replaced, removed and created again is reported each time`() async {
        let path = scratch.path + "/app.yaml"
        scratch.write("app.yaml", "1")
        manager.lifecycle.watch(file: path, quiet: .milliseconds(20))
        var reader = manager.lifecycle.readEnvironment().makeAsyncIterator()
        scratch.write("app.yaml", "in place")
        await expect(8, &reader, path)
        scratch.replace("app.yaml", "replaced")
        scratch.replace("app.yaml", "replaced once more")
        await expect(18, &reader, path)
        scratch.remove("app.yaml")
        await expect(nil, &reader, path)
        scratch.write("app.yaml", "again")
        await expect(5, &reader, path)
    }

    @Test func `C66 a file is found although its directories are created later, moved away and moved back`() async {
        let path = scratch.path + "/etc/app/app.yaml"
        manager.lifecycle.watch(file: path, quiet: .milliseconds(20))
        var reader = manager.lifecycle.readEnvironment().makeAsyncIterator()
        scratch.makeDirectory("etc")
        scratch.makeDirectory("etc/app")
        scratch.write("etc/app/app.yaml", "1234")
        await expect(4, &reader, path)
        rename(scratch.path + "/etc", scratch.path + "/other")
        await expect(nil, &reader, path)
        scratch.makeDirectory("etc")
        scratch.makeDirectory("etc/app")
        scratch.write("etc/app/app.yaml", "123")
        await expect(3, &reader, path)
        scratch.write("other/app/app.yaml", "what was moved away says nothing any more")
        scratch.write("etc/app/app.yaml", "12")
        await expect(2, &reader, path)
    }

    @Test func `C66 a ConfigMap's files change with the exchanged link`() async {
        scratch.makeDirectory("..1")
        scratch.write("..1/app.yaml", "1")
        scratch.link("..data", to: "..1")
        scratch.link("app.yaml", to: "..data/app.yaml")
        let path = scratch.path + "/app.yaml"
        manager.lifecycle.watch(file: path, quiet: .milliseconds(20))
        var reader = manager.lifecycle.readEnvironment().makeAsyncIterator()
        for size in 2...4 {
            scratch.makeDirectory("..\(size)")
            scratch.write("..\(size)/app.yaml", String(repeating: "x", count: size))
            scratch.link("..data", to: "..\(size)")
            scratch.remove("..\(size - 1)/app.yaml")
            scratch.remove("..\(size - 1)")
            await expect(size, &reader, path)
        }
    }

    @Test func `C66 C59 a loop of links is quiet, two names of one file are both reported, and equal content is not`() async {
        scratch.link("a", to: "b")
        scratch.link("b", to: "a")
        scratch.write("real", "1")
        scratch.link("alias", to: "real")
        for name in ["a", "real", "alias"] { manager.lifecycle.watch(file: "\(scratch.path)/\(name)", quiet: .milliseconds(20)) }
        var reader = manager.lifecycle.readEnvironment().makeAsyncIterator()
        scratch.replace("real", "1")
        scratch.write("real", "1")
        scratch.replace("real", "123")
        var kinds: Set<EnvironmentChange.Kind> = []
        while kinds.count < 2, let change = await reader.next() {
            if case .file = change.kind { kinds.insert(change.kind) }
        }
        #expect(kinds == [.file(scratch.path + "/real"), .file(scratch.path + "/alias")])
    }

    @Test func `C64 the time zone follows the link, the link's target, and TZ`() async {
        scratch.makeDirectory("etc")
        scratch.makeDirectory("usr")
        scratch.makeDirectory("usr/share")
        scratch.makeDirectory("usr/share/zoneinfo")
        for name in ["Berlin", "Lima"] { scratch.write("usr/share/zoneinfo/\(name)", "rules of \(name)") }
        symlink("../usr/share/zoneinfo/Berlin", scratch.path + "/etc/localtime")
        let manager = ResourceManager(source: LinuxPressureSource(kernel: BentKernel(root: scratch.path)))
        var reader = manager.lifecycle.readEnvironment().makeAsyncIterator()
        #expect(manager.lifecycle.timeZone?.name == "Berlin" && manager.lifecycle.timeZone?.rulesHash != nil)

        symlink("../usr/share/zoneinfo/Lima", scratch.path + "/etc/new")
        rename(scratch.path + "/etc/new", scratch.path + "/etc/localtime")
        let moved = await reader.next()
        #expect(moved?.kind == .timeZone && manager.lifecycle.timeZone?.name == "Lima")
        scratch.replace("usr/share/zoneinfo/Lima", "new rules")
        let before = await reader.next()?.from?.zone
        #expect(before?.name == "Lima" && before?.rulesHash != manager.lifecycle.timeZone?.rulesHash)

        let named = LinuxEnvironment(BentKernel(root: scratch.path), zone: ":Berlin")
        let zone = named.read(.timeZone)?.zone
        #expect(zone?.name == "Berlin" && zone?.rulesHash != nil)
    }

    @Test func `C64 the locale follows the machine's locale file`() async {
        scratch.makeDirectory("etc")
        scratch.write("etc/locale.conf", "LANG=\"de_DE.UTF-8\"\n")
        let manager = ResourceManager(source: LinuxPressureSource(kernel: BentKernel(root: scratch.path)))
        var reader = manager.lifecycle.readEnvironment().makeAsyncIterator()
        #expect(manager.lifecycle.locale == "de_DE")
        scratch.write("etc/new", "# comment\nLANG=en_GB.UTF-8\nLC_ALL = fr_FR\n")
        rename(scratch.path + "/etc/new", scratch.path + "/etc/locale.conf")
        #expect(await reader.next() == EnvironmentChange(.locale, from: .text("de_DE"), to: .text("fr_FR"), count: 1))
    }

    @Test func `C59 C66 a process stopped during ten thousand changes receives one event, or none if the file ends as at the beginning`() async {
        await #expect(processExitsWith: .success) {
            let scratch = Scratch()
            let path = scratch.path + "/app.yaml"
            scratch.write("app.yaml", "begin")
            // The manager's time stands still. Otherwise the life cycle would come back from the same gap in parallel,
            // and end the hold of this test.
            let manager = ResourceManager(source: LinuxPressureSource(), time: ManualClock().timekeeper)
            manager.lifecycle.watch(file: path)
            let seen = Mutex<[EnvironmentChange]>([])
            manager.lifecycle.onEnvironmentChange("file", .file(path)) { change in seen.withLock { $0.append(change) } }
            // The script stops this process, writes, and lets this process continue.
            func stopped(_ last: String) {
                let script = """
                    kill -STOP \(getpid()); i=0; while [ $i -lt 5000 ]; do i=$((i+1)); echo $i > \(path); echo x$i > \(path); done
                    printf %s '\(last)' > \(scratch.path)/new; mv \(scratch.path)/new \(path); kill -CONT \(getpid())
                    """
                let child = ProcessOf(["sh", "-c", script])
                _ = child.wait()
            }
            func resync() async -> EnvironmentResync { await manager.lifecycle.environment.resync(within: .seconds(30)) }
            manager.lifecycle.environment.hold()
            stopped("the end")
            _ = await resync()
            let first = seen.withLock { $0 }
            guard first.count == 1, first[0].count > 1, first[0].to?.version?.size == 7 else {
                print(first)
                scratch.exit(2)
            }
            manager.lifecycle.environment.hold()
            stopped("the end")
            _ = await resync()
            scratch.exit(seen.withLock { $0.count } == 1 ? 0 : 3)
        }
    }
}
