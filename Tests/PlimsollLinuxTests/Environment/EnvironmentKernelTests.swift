import Glibc
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle
@testable import PlimsollLinux

@Suite(.serialized, .timeLimit(.minutes(5))) struct EnvironmentKernelTests {
    let kernel = BentKernel()

    private static func isAnHour(_ change: EnvironmentChange?) -> Bool {
        guard let from = change?.from?.clock, let to = change?.to?.clock else { return false }
        return to - from > .seconds(3599) && to - from < .seconds(3601)
    }

    // MARK: Clock

    @Test func `C63 a set clock is reported with the old and the new time, and a jump within the tolerance is not`() async {
        let manager = ResourceManager(source: LinuxPressureSource(kernel: kernel))
        var reader = manager.lifecycle.readEnvironment().makeAsyncIterator()
        kernel.setClock(by: .seconds(3600))
        var change = await reader.next()
        while change?.kind != .clock { change = await reader.next() }
        #expect(Self.isAnHour(change))
        #expect(manager.capabilities["clock set"]?.isLive == true)
        kernel.setClock(by: .milliseconds(20))
        manager.lifecycle.post(.custom("last"))
        #expect(await reader.next()?.kind == .custom("last"))
    }

    @Test func `C63 the timer is set for the next midnight or shift, and both are reported`() async {
        // 2026-03-28 12:00 UTC in Berlin; the shift is on the 29th at 01:00 UTC.
        let noon: Int64 = 1_774_699_200, midnight: Int64 = 1_774_738_800, shift: Int64 = 1_774_746_000
        kernel.edit {
            $0.usesOwnClock = true
            $0.seconds = noon
            $0.zone = [(.min, 3600), (shift, 7200)]
        }
        let manager = ResourceManager(source: LinuxPressureSource(kernel: kernel))
        let seen = Mutex<[EnvironmentChange]>([])
        manager.lifecycle.onEnvironmentChange("day", .day, .timeZone) { change in seen.withLock { $0.append(change) } }
        #expect(kernel.ask(\.timerSetTo).last == midnight)
        kernel.reach(midnight)
        await until { seen.withLock { $0.count } == 1 }
        #expect(seen.withLock { $0[0].kind } == .day && kernel.ask(\.timerSetTo).last == shift)
        kernel.reach(shift)
        await until { seen.withLock { $0.count } == 2 }
        #expect(seen.withLock { $0[1].to?.zone?.secondsFromUTC } == 7200)
    }

    @Test func `C63 a watcher of the clock alone is not woken at midnight`() {
        let environment = LinuxEnvironment(kernel, zone: nil)
        #expect(environment.watch(.clock))
        #expect(kernel.ask(\.timerSetTo) == [8_000_000_000])
        environment.unwatch(.clock)
    }

    @Test func `C63 a set clock and a begun day are reported, although a watch is added or removed before the timer is read`() throws {
        kernel.edit { $0.usesOwnClock = true }
        var watch = ClockWatch(kernel)
        watch.add(.clock, at: .zero)
        kernel.setClock(by: .seconds(3600))
        watch.add(.day, at: .zero)
        let added = watch.collect(at: .zero), again = watch.collect(at: .zero)
        #expect(added[.clock] == 1 && again.isEmpty)
        kernel.setClock(by: .seconds(3600))
        watch.remove(.day, at: .zero)
        let removed = watch.collect(at: .zero)
        #expect(removed == [.clock: 1])
        watch.add(.day, at: .zero)
        kernel.reach(try #require(kernel.ask(\.timerSetTo).last))
        watch.add(.timeZone, at: .zero)
        let begun = watch.collect(at: .zero)
        #expect(begun[.day] == 1)
        watch.close()
    }

    @Test func `C63 dates and shifts are found in any zone`() {
        var random = SeededGenerator(seed: usualSeed(1))
        for _ in 0..<300 {
            let now = Int64.random(in: 0...4_000_000_000, using: &random), shift = now + Int64.random(in: 1...399 * 86400, using: &random)
            let before = Int.random(in: -47...56, using: &random) * 900, after = before + [-3600, 3600, 1800, -86400].randomElement(using: &random)!
            let local = LocalTime { $0 < shift ? before : after }
            #expect(local.shift(after: now) == shift)
            let midnight = local.midnight(after: now)
            #expect(midnight > now && local.day(at: midnight) != local.day(at: now) && local.day(at: midnight - 1) != local.day(at: midnight))
        }
        #expect(LocalTime { _ in 0 }.shift(after: 0) == nil)
        #expect(LocalTime { _ in -3600 }.day(at: 0) == -1 && LocalTime { _ in 0 }.day(at: -86400) == -1)
    }

    // MARK: Devices and power

    @Test func `C70 uevents of a registered subsystem are reported, and other uevents are not`() async {
        let scratch = Scratch()
        for name in ["sys", "sys/class", "sys/class/net", "sys/class/net/lo"] { scratch.makeDirectory(name) }
        let kernel = BentKernel(root: scratch.path)
        let manager = ResourceManager(source: LinuxPressureSource(kernel: kernel))
        #expect(kernel.ask(\.uevents) == -1)
        var reader = manager.lifecycle.readEnvironment().makeAsyncIterator()
        #expect(kernel.ask(\.uevents) == -1, "no watcher is registered")
        manager.lifecycle.watch(devices: "net")
        #expect(manager.capabilities["devices"]?.isLive == true)
        kernel.send("add@/devices/x\0ACTION=add\0DEVPATH=/devices/x\0SUBSYSTEM=block\0SEQNUM=1\0")
        scratch.makeDirectory("sys/class/net/eth0")
        kernel.send("add@/devices/y\0ACTION=add\0DEVPATH=/devices/y/net/eth0\0SUBSYSTEM=net\0INTERFACE=eth0\0SEQNUM=2\0")
        #expect(await reader.next() == EnvironmentChange(.device("net"), from: .devices(["lo"]), to: .devices(["eth0", "lo"])))
        scratch.remove("sys/class/net/eth0")
        kernel.send("remove@/devices/y\0ACTION=remove\0DEVPATH=/devices/y/net/eth0\0SUBSYSTEM=net\0")
        #expect(await reader.next()?.to == .devices(["lo"]))
    }

    @Test func `C70 the capabilities give the reason where uevents are refused`() {
        kernel.edit { $0.refusesUevents = EAFNOSUPPORT }
        let manager = ResourceManager(source: LinuxPressureSource(kernel: kernel))
        let registration = manager.lifecycle.watch(devices: "usb")
        let signal = manager.capabilities["devices"]
        #expect(signal?.isLive == false && signal?.detail.isEmpty == false && signal?.remedy != nil)
        registration.cancel()
        #expect(manager.capabilities["devices"] == nil)
    }

    @Test func `C71 the power supply's value comes from the device files, and keeps a posted notice`() async {
        let scratch = Scratch()
        var directory = ""
        for name in ["sys", "class", "power_supply"] {
            directory += (directory.isEmpty ? "" : "/") + name
            scratch.makeDirectory(directory)
        }
        for (name, files) in [
            ("AC", ["online": "1"]), ("BAT0", ["capacity": "80", "scope": "System"]), ("BAT1", ["capacity": "75"]),
            ("mouse", ["capacity": "3", "scope": "Device"]),
        ] {
            scratch.makeDirectory("\(directory)/\(name)")
            for (file, text) in files { scratch.write("\(directory)/\(name)/\(file)", text + "\n") }
        }
        let kernel = BentKernel(root: scratch.path)
        let manager = ResourceManager(source: LinuxPressureSource(kernel: kernel))
        manager.lifecycle.watch(devices: "power_supply")
        var reader = manager.lifecycle.readEnvironment().makeAsyncIterator()
        scratch.write("\(directory)/AC/online", "0\n")
        kernel.send("change@/devices/AC\0ACTION=change\0DEVPATH=/devices/AC\0SUBSYSTEM=power_supply\0")
        let change = await reader.next()
        #expect(change?.from == .power(isOnMains: true, percent: 75) && change?.to == .power(isOnMains: false, percent: 75))
        manager.lifecycle.post(.power, .power(notice: "taken away in 120 s"))
        #expect(await reader.next()?.to == .power(isOnMains: false, percent: 75, notice: "taken away in 120 s"))
    }

    // MARK: Parsers

    // The compiler (6.3.1) breaks on spans of temporaries within a macro.
    private static func uevent(_ bytes: [UInt8]) -> Uevent? { Uevent(bytes.span) }
    private static func fileEvents(_ bytes: [UInt8]) -> [FileEvent] { FileEvent.parse(bytes.span) }

    @Test func `C70 no bytes make the readers of uevents and of inotify trap, and the kernel's own bytes are understood`() {
        let golden =
            "change@/devices/LNXSYSTM:00/power_supply/BAT0\0ACTION=change\0DEVPATH=/devices/LNXSYSTM:00/power_supply/BAT0\0SUBSYSTEM=power_supply\0SEQNUM=7\0"
        let bytes = Array(golden.utf8)
        let event = Self.uevent(bytes)
        #expect(event?.action == "change" && event?.subsystem == "power_supply" && event?.path.hasSuffix("BAT0") == true)
        #expect(Self.uevent(Array("libudev\0\u{FE}ACTION".utf8)) == nil && Self.uevent([]) == nil)
        let moved: [UInt8] =
            [3, 0, 0, 0, 0x80, 0, 0, 0, 9, 0, 0, 0, 4, 0, 0, 0, 0x61, 0x62, 0, 0] + [1, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        #expect(
            Self.fileEvents(moved) == [
                FileEvent(descriptor: 3, mask: FileEvent.movedTo, name: "ab"), FileEvent(descriptor: 1, mask: FileEvent.ignored, name: ""),
            ])
        var understood = 0
        for seed in seeds(0..<10_000) {
            var random = SeededGenerator(seed: seed)
            let text = FuzzTests.mutated(golden, with: &random)
            if Self.uevent(text) != nil { understood += 1 }
            var events = moved
            for _ in 0..<3 { events[Int.random(in: 0..<events.count, using: &random)] = UInt8.random(in: 0...255, using: &random) }
            #expect(Self.fileEvents(Array(events.prefix(Int.random(in: 0...events.count, using: &random)))).count <= 2)
            _ = LocaleFile.name(in: String(decoding: FuzzTests.mutated("LANG=de_DE.UTF-8\nLC_ALL=x\n", with: &random), as: UTF8.self))
        }
        if !hasChosenSeed { #expect(understood > 1000) }
    }

    // MARK: Faults

    @Test func `T18 a broken watch that is cancelled is not retried, so that the watching thread sleeps`() {
        let scratch = Scratch(), kernel = BentKernel(root: scratch.path)
        kernel.edit { $0.refusesUevents = EAFNOSUPPORT }
        let environment = LinuxEnvironment(kernel, zone: nil)
        #expect(environment.watch(.device("usb")) && environment.watch(.file("/app")))
        let later = environment.now + .seconds(3600)
        let broken = environment.state.withLock { $0.devices.retry.wait(at: later) }
        environment.unwatch(.device("usb"))
        let cancelled = environment.state.withLock { $0.devices.retry.wait(at: later) }
        #expect(broken == Duration.zero && cancelled == nil)
        environment.unwatch(.file("/app"))
    }

    @Test func `T18 nothing is retried after the last broken watch is gone, or works again after an event`() {
        let scratch = Scratch(), kernel = BentKernel(root: scratch.path), later = Duration.seconds(3600)
        kernel.edit { ($0.failingCall, $0.failure) = ($0.calls + 1, EMFILE) }
        var clock = ClockWatch(kernel)
        clock.add(.clock, at: .zero)
        #expect(clock.retry.wait(at: later) == Duration.zero)
        clock.remove(.clock, at: .zero)
        #expect(clock.retry.wait(at: later) == nil)

        var files = PathWatches(kernel)
        files.add(.file("/app"), ["/app"], at: .zero)
        // For a missing name the directory is watched between two looks at the name.
        kernel.edit { ($0.failingCall, $0.failure) = ($0.calls + 2, ENOSPC) }
        files.add(.file("/more"), ["/more"], at: .zero)
        #expect(files.broken == [.file("/more")] && files.retry.wait(at: later) == Duration.zero)
        files.remove(.file("/more"))
        #expect(files.retry.wait(at: later) == nil)

        kernel.edit { $0.failingCall = $0.calls + 5 }
        files.add(.locale, ["/first", "/second"], at: .zero)
        #expect(files.broken == [.locale] && files.retry.wait(at: later) == Duration.zero)
        scratch.write("first", "new")
        let counts = files.collect(at: .zero)
        #expect(counts[.locale] ?? 0 > 0 && files.broken.isEmpty && files.retry.wait(at: later) == nil)
        files.close()
    }

    @Test func `a pause follows events of other files in the directory and of other devices, which may come without end`() {
        let scratch = Scratch(), kernel = BentKernel(root: scratch.path)
        scratch.write("app", "old")
        var files = PathWatches(kernel)
        files.add(.file("/app"), ["/app"], at: .zero)
        #expect(files.eventSource.isPollable(at: .zero))
        scratch.write("neighbour", "new")
        let ofFiles = files.collect(at: .zero)
        #expect(ofFiles.isEmpty && !files.eventSource.isPollable(at: .zero))
        #expect(files.eventSource.isPollable(at: .milliseconds(10)))
        files.close()

        var devices = DeviceWatch(kernel)
        devices.add(.device("net"), at: .zero)
        #expect(devices.eventSource.isPollable(at: .zero))
        kernel.send("add@/x\0ACTION=add\0DEVPATH=/x\0SUBSYSTEM=block\0")
        let ofDevices = devices.collect(at: .zero)
        #expect(ofDevices.isEmpty && !devices.eventSource.isPollable(at: .zero))
        #expect(devices.eventSource.isPollable(at: .milliseconds(10)))
        devices.close()
    }

    @Test(arguments: [EIO, EMFILE, EBADF])
    func `a watch survives any single failing call, and the watching thread ends with the last watcher`(failure: Int32) async {
        var reached = 0
        for nth in 1...2000 {
            let scratch = Scratch()
            scratch.makeDirectory("etc")
            scratch.write("etc/app", "old")
            let kernel = BentKernel(root: scratch.path)
            kernel.edit {
                $0.failingCall = nth
                $0.failure = failure
            }
            let environment = LinuxEnvironment(kernel, zone: nil)
            let received = Mutex<[EnvironmentChange.Kind: Int]>([:])
            environment.start { kind, events in received.withLock { $0[kind, default: 0] += events } }
            let kinds: [EnvironmentChange.Kind] = [.file("/etc/app"), .clock, .device("net")]
            for kind in kinds { #expect(environment.watch(kind)) }
            scratch.write("etc/new", "changed")
            rename(scratch.path + "/etc/new", scratch.path + "/etc/app")
            kernel.setClock(by: .seconds(100))
            kernel.send("add@/x\0ACTION=add\0DEVPATH=/x\0SUBSYSTEM=net\0")
            // The retry reads everything again, and need not wait for a pause.
            var value: EnvironmentValue?
            await until("call \(nth)") {
                environment.collect()
                value = environment.read(.file("/etc/app"))
                return value != nil && received.withLock { received in kinds.allSatisfy { received[$0] ?? 0 > 0 } }
            }
            #expect(value?.version?.size == 7, "call \(nth)")
            for kind in kinds { environment.unwatch(kind) }
            await until { !environment.state.withLock { $0.hasThread } }
            guard kernel.ask(\.faultWasReached) else { break }
            reached += 1
        }
        #expect(reached > 20, "\(reached)")
    }

    @Test func `T39 a forked child neither watches nor hangs, and takes no event from the parent`() async {
        await #expect(processExitsWith: .success) {
            let scratch = Scratch()
            scratch.write("app", "old")
            let manager = ResourceManager(source: LinuxPressureSource())
            let path = scratch.path + "/app"
            let registration = manager.lifecycle.watch(file: path)
            let notified = Parker()
            manager.lifecycle.onEnvironmentChange("file", .file(path)) { change in if change.to?.version?.size == 5 { notified.unpark() } }
            typealias Fork = @convention(c) () -> pid_t
            guard let fork = dlsym(nil, "fork").map({ unsafeBitCast($0, to: Fork.self) }) else { scratch.exit(3) }
            // The parent calls the child's functions once before: at a first call, Swift's runtime takes locks that
            // another thread may hold at the fork.
            let before = manager.lifecycle.watch(file: scratch.path + "/other")
            manager.lifecycle.environment.watch.refresh()
            before.cancel()
            guard manager.lifecycle.locale != "none" else { scratch.exit(2) }
            let child = fork()
            if child == 0 {
                // A hang despite that is a failure.
                alarm(60)
                manager.lifecycle.environment.watch.refresh()
                registration.cancel()
                _exit(manager.lifecycle.locale == "none" ? 1 : 0)
            }
            var status: Int32 = 0
            guard waitpid(child, &status, 0) == child, status == 0 else { scratch.exit(4) }
            scratch.replace("app", "new!!")
            notified.park()
            scratch.exit(0)
        }
    }

    // MARK: The test bed

    static let isTestBed = getenv("BOX") != nil && getuid() == 0

    @Test(.needs(isTestBed, "only a machine of our own may have its clock set", or: .virtualMachine))
    func `C63 the kernel reports a set clock`() async {
        let manager = ResourceManager(source: LinuxPressureSource())
        var reader = manager.lifecycle.readEnvironment().makeAsyncIterator()
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        now.tv_sec += 3600
        guard clock_settime(CLOCK_REALTIME, &now) == 0 else {
            Issue.record("the clock cannot be set: \(String(cString: strerror(errno)))")
            return
        }
        var change = await reader.next()
        while change?.kind != .clock { change = await reader.next() }
        #expect(Self.isAnHour(change))
    }

    @Test(.needs(isTestBed, "a namespace's sockets get no uevents of the machine", or: .virtualMachine))
    func `C70 the kernel's uevents arrive`() async {
        let environment = LinuxEnvironment(HostKernel(), zone: nil)
        let received = Mutex(0)
        environment.start { kind, events in if kind == .device("mem") { received.withLock { $0 += events } } }
        #expect(environment.watch(.device("mem")))
        #expect(HostKernel().write(Array("change".utf8), to: "/sys/class/mem/null/uevent") == nil)
        await until { received.withLock { $0 } > 0 }
        environment.unwatch(.device("mem"))
    }
}
