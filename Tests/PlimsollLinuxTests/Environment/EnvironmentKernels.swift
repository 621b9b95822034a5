import Glibc
import Plimsoll
import Synchronization

@testable import PlimsollLifecycle
@testable import PlimsollLinux

/// This machine's kernel with a clock and devices of the test, whose Nth call fails.
final class BentKernel: EnvironmentKernel {
    struct State {
        var ahead = Duration.zero
        var seconds: Int64 = 0
        var usesOwnClock = false
        var zone: [(from: Int64, offset: Int)] = [(.min, 0)]
        var timer: Int32 = -1
        var timerSetTo: [Int64] = []
        /// The timer's answer to the next reading.
        var rings: Int?
        var uevents: Int32 = -1
        var messages: [[UInt8]] = []
        var refusesUevents: Int32?
        var process: Int32 = getpid()

        var calls = 0
        var failingCall = Int.max
        var failure = EIO
        var faultWasReached = false
    }

    let state = Mutex(State())
    let host: HostKernel
    /// The offset that makes the clock show noon at the creation, with any uptime of the machine: so no test reaches
    /// midnight by chance.
    private let noon: Duration

    init(root: String = "") {
        let host = HostKernel(root: root)
        (self.host, noon) = (host, Duration.seconds(1_080_000) - host.clocks.boot)
    }

    func edit(_ change: (inout State) -> Void) { state.withLock { change(&$0) } }
    func ask<Value: Sendable>(_ question: (State) -> Value) -> Value { state.withLock { question($0) } }

    /// Sets the clock, as another program would.
    func setClock(by step: Duration) {
        state.withLock { state in
            state.ahead += step
            state.rings = -Int(ECANCELED)
            Self.ring(state.timer)
        }
    }

    /// Lets the time come that the timer was set to.
    func reach(_ second: Int64) {
        state.withLock { state in
            state.seconds = second
            state.rings = 8
            Self.ring(state.timer)
        }
    }

    func send(_ message: String) {
        state.withLock { state in
            state.messages.append(Array(message.utf8))
            Self.ring(state.uevents)
        }
    }

    /// Makes the file readable. Called under the lock, as the file is drained under the lock: a message that comes
    /// between a look at an empty queue and the draining would never be read.
    private static func ring(_ file: Int32) {
        guard file >= 0 else { return }
        var one = UInt64(1)
        _ = Glibc.write(file, &one, 8)
    }

    /// Counts a call. Returns the negated errno if the call is to fail.
    private func fault() -> Int32? {
        state.withLock { state in
            state.calls += 1
            guard state.calls == state.failingCall else { return nil }
            state.faultWasReached = true
            return -state.failure
        }
    }

    func open(_ path: String, _ access: FileAccess) -> Int32 { fault() ?? host.open(path, access) }
    func close(_ file: Int32) { host.close(file) }
    func read(_ file: Int32, from offset: Int, into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
        fault().map { Int($0) } ?? host.read(file, from: offset, into: buffer)
    }
    func drain(_ file: Int32) -> Int { fault().map { Int($0) } ?? host.drain(file) }
    func write(_ file: Int32, _ bytes: UnsafeBufferPointer<UInt8>) -> Int { fault().map { Int($0) } ?? host.write(file, bytes) }
    func status(of path: String) -> FileStatus { host.status(of: path) }
    func connect(_ path: String) -> Int32 { host.connect(path) }
    func makeEvent() -> Int32 { fault() ?? host.makeEvent() }
    func makeWatch() -> Int32 { fault() ?? host.makeWatch() }
    func watchWrites(to path: String, _ watch: Int32) -> Int32 { host.watchWrites(to: path, watch) }
    func wait(for files: UnsafeMutableBufferPointer<pollfd>, nanoseconds: Int64) -> Int {
        fault().map { Int($0) } ?? host.wait(for: files, nanoseconds: nanoseconds)
    }
    var processID: Int32 { state.withLock { $0.process } }

    func receive(_ file: Int32, into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
        if let fault = fault() { return Int(fault) }
        let answer: Int?? = state.withLock { state in
            guard file == state.timer else { return nil }
            defer { state.rings = nil }
            _ = host.drain(file)
            return .some(state.rings)
        }
        guard let answer else { return host.receive(file, into: buffer) }
        return answer ?? -Int(EAGAIN)
    }

    func watchDirectory(_ path: String, _ watch: Int32, _ mask: UInt32) -> Int32 { fault() ?? host.watchDirectory(path, watch, mask) }
    func unwatch(_ watch: Int32, _ descriptor: Int32) { host.unwatch(watch, descriptor) }
    func details(of path: String) -> FileDetails { fault() == nil ? host.details(of: path) : .unreachable }
    func target(of path: String) -> String? { fault() == nil ? host.target(of: path) : nil }
    func names(in directory: String) -> [String]? { fault() == nil ? host.names(in: directory) : nil }

    func makeClockTimer() -> Int32 {
        if let fault = fault() { return fault }
        let timer = host.makeEvent()
        edit { $0.timer = timer }
        return timer
    }

    func setClockTimer(_ timer: Int32, at second: Int64) -> Int32 {
        if let fault = fault() { return fault }
        return state.withLock { state in
            state.timerSetTo.append(second)
            // As the kernel does: an event that was not read yet is gone. Only a set clock is reported, here.
            defer { state.rings = nil }
            _ = host.drain(timer)
            return state.rings == -Int(ECANCELED) ? -ECANCELED : 0
        }
    }

    var clocks: (real: Duration, boot: Duration) {
        let now = host.clocks
        return state.withLock { state in
            state.usesOwnClock ? (.seconds(state.seconds) + state.ahead, now.boot) : (now.boot + noon + state.ahead, now.boot)
        }
    }

    func secondsFromUTC(at second: Int64) -> Int { state.withLock { $0.zone.last { $0.from <= second }?.offset ?? 0 } }

    func openUevents() -> Int32 {
        if let fault = fault() { return fault }
        if let refusal = ask(\.refusesUevents) { return -refusal }
        let file = host.makeEvent()
        edit { $0.uevents = file }
        return file
    }

    func receiveUevent(_ file: Int32, into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
        if let fault = fault() { return Int(fault) }
        let message: [UInt8]? = state.withLock { state in
            guard state.messages.isEmpty else { return state.messages.removeFirst() }
            _ = host.drain(file)
            return nil
        }
        guard let message else { return -Int(EAGAIN) }
        for (index, byte) in message.enumerated() { buffer[index] = byte }
        return message.count
    }
}

/// A separate directory, removed with this object.
final class Scratch: Sendable {
    let path: String

    init() {
        // The directory is in memory: a disk's file system may write a file back each time the file is emptied and
        // filled again.
        let base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"
        var template = Array("\(base)/plimsoll-environment-XXXXXX".utf8CString)
        path = template.withUnsafeMutableBufferPointer { String(cString: mkdtemp($0.baseAddress!)) }
    }

    deinit { clear() }

    private func clear() { _ = ProcessOf(["rm", "-rf", path]).wait() }

    /// Removes the directory and ends the process, which would leave the directory behind.
    func exit(_ status: Int32) -> Never {
        clear()
        Glibc.exit(status)
    }

    /// Writes a file in place.
    func write(_ name: String, _ text: String) {
        let file = Glibc.open("\(path)/\(name)", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
        _ = text.withCString { Glibc.write(file, $0, text.utf8.count) }
        Glibc.close(file)
    }

    /// Replaces the old file by a new file.
    func replace(_ name: String, _ text: String) {
        write("\(name).new", text)
        rename("\(path)/\(name).new", "\(path)/\(name)")
    }

    /// Makes `name` a link to `target` in one step.
    func link(_ name: String, to target: String) {
        symlink(target, "\(path)/.link.new")
        rename("\(path)/.link.new", "\(path)/\(name)")
    }

    func makeDirectory(_ name: String) { mkdir("\(path)/\(name)", 0o755) }
    func remove(_ name: String) { Glibc.remove("\(path)/\(name)") }
}

/// A child that runs a program found in the path.
struct ProcessOf {
    let id: pid_t

    init(_ words: [String]) {
        var arguments: [UnsafeMutablePointer<CChar>?] = words.map { (word: String) in strdup(word) } + [nil]
        defer { for argument in arguments { free(argument) } }
        var child: pid_t = 0
        _ = posix_spawnp(&child, words[0], nil, nil, &arguments, environ)
        id = child
    }

    func wait() -> Int32 {
        var status: Int32 = 0
        repeat { errno = 0 } while waitpid(id, &status, 0) < 0 && errno == EINTR
        return status
    }
}

extension EnvironmentValue {
    var clock: Duration? {
        if case .clock(let offset) = self { offset } else { nil }
    }
    var zone: (name: String?, rulesHash: UInt64?, secondsFromUTC: Int)? {
        if case .timeZone(let name, let rulesHash, let secondsFromUTC) = self { (name, rulesHash, secondsFromUTC) } else { nil }
    }
    var version: (contentHash: UInt64?, size: Int)? {
        if case .file(let contentHash, let size, _) = self { (contentHash, size) } else { nil }
    }
}
