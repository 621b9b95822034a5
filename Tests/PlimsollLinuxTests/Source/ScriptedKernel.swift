import Glibc
import Plimsoll
import PlimsollLifecycle
import Synchronization

@testable import PlimsollLinux

/// A kernel whose files are texts, whose time passes only in `wait`, and whose Nth call fails.
final class ScriptedKernel: Kernel {
    enum Persistence: CaseIterable { case once, forever }

    struct State {
        var files: [String: String] = [:]
        /// Errno with which opening fails or, for a control file, writing.
        var refusals: [String: Int32] = [:]
        var writeRefusals: [String: Int32] = [:]
        /// Errno with which reading fails, though the file can be opened.
        var readRefusals: [String: Int32] = [:]
        /// Errno with which writing that text fails.
        var refusedTexts: [String: Int32] = [:]
        var kinds: [String: FileStatus] = [:]
        /// Conditions that polling a file reports. Reading clears the condition of a `memory.events`.
        var conditions: [String: Int16] = [:]
        /// Files whose conditions end once a poll has reported them.
        var clearedByPolling: Set<String> = []
        /// Number of bytes that the other side has put into a FIFO or socket.
        var queued: [String: Int] = [:]
        var written: [(path: String, text: String)] = []
        var reads: [String: Int] = [:]
        var open: [Int32: String] = [:]
        var events: [Int32: UInt64] = [:]
        /// The event that counts the writes to a path.
        var watches: [String: Int32] = [:]
        var refusesWatches = false
        var lastFile: Int32 = 2

        var calls = 0
        var failingCall = Int.max
        var persistence = Persistence.once
        var failure = EIO
        var faultWasReached = false

        /// The time of each attempt to connect to a socket.
        var connects: [Int64] = []
        var waits = 0
        var slept: Int64 = 0
    }

    let state: Mutex<State>

    init(_ files: [String: String]) {
        var state = State()
        state.files = files
        self.state = Mutex(state)
    }

    func edit(_ change: (inout State) -> Void) { state.withLock { change(&$0) } }
    func ask<Value>(_ question: (State) -> Value) -> Value { state.withLock { question($0) } }

    /// Counts a call. Returns the errno if the call is to fail.
    private func call(_ state: inout State) -> Int32? {
        state.calls += 1
        guard state.persistence == .once ? state.calls == state.failingCall : state.calls >= state.failingCall else { return nil }
        state.faultWasReached = true
        return state.failure
    }

    func open(_ path: String, _ access: FileAccess) -> Int32 {
        state.withLock { state in
            if let failure = call(&state) { return -failure }
            if let refusal = state.refusals[path] { return -refusal }
            guard state.files[path] != nil || state.kinds[path] != nil else { return -ENOENT }
            state.lastFile += 1
            state.open[state.lastFile] = path
            return state.lastFile
        }
    }

    func close(_ file: Int32) {
        state.withLock { state in
            state.open[file] = nil
            state.events[file] = nil
        }
    }

    func read(_ file: Int32, from offset: Int, into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
        state.withLock { state in
            if let failure = call(&state) { return -Int(failure) }
            guard let path = state.open[file] else { return -Int(EBADF) }
            state.reads[path, default: 0] += 1
            if let refusal = state.readRefusals[path] { return -Int(refusal) }
            guard let text = state.files[path] else { return -Int(ENODEV) }
            if path.hasSuffix("memory.events") { state.conditions[path] = nil }
            let bytes = Array(text.utf8.dropFirst(offset).prefix(buffer.count))
            for (index, byte) in bytes.enumerated() { buffer[index] = byte }
            return bytes.count
        }
    }

    func drain(_ file: Int32) -> Int {
        state.withLock { state in
            if let failure = call(&state) { return -Int(failure) }
            if let count = state.events[file] {
                state.events[file] = 0
                return count > 0 ? 8 : -Int(EAGAIN)
            }
            guard let path = state.open[file] else { return -Int(EBADF) }
            let count = state.queued[path] ?? 0
            state.queued[path] = 0
            if count == 0, state.conditions[path] == nil { return -Int(EAGAIN) }
            return count
        }
    }

    func write(_ file: Int32, _ bytes: UnsafeBufferPointer<UInt8>) -> Int {
        state.withLock { state in
            if let failure = call(&state) { return -Int(failure) }
            if state.events[file] != nil {
                state.events[file]! += 1
                return bytes.count
            }
            guard let path = state.open[file] else { return -Int(EBADF) }
            if let refusal = state.writeRefusals[path] { return -Int(refusal) }
            let text = String(decoding: bytes, as: UTF8.self)
            if let refusal = state.refusedTexts[text] { return -Int(refusal) }
            state.written.append((path, text))
            if path.hasSuffix("memory.high") { state.files[path] = text + "\n" }
            return bytes.count
        }
    }

    func status(of path: String) -> FileStatus {
        state.withLock { state in
            if let failure = call(&state) { return .failed(failure) }
            if let kind = state.kinds[path] { return kind }
            if state.files[path] != nil { return .regular(path.hasPrefix("/proc") ? .proc : .cgroup2) }
            return state.files.keys.contains { $0.hasPrefix(path + "/") } ? .directory : .failed(ENOENT)
        }
    }

    func connect(_ path: String) -> Int32 {
        state.withLock { $0.connects.append($0.slept) }
        if status(of: path) != .socket { return -ECONNREFUSED }
        return open(path, .both)
    }

    func makeEvent() -> Int32 {
        state.withLock { state in
            if let failure = call(&state) { return -failure }
            state.lastFile += 1
            state.events[state.lastFile] = 0
            return state.lastFile
        }
    }

    /// Returns an event as the watch, which `moveLimit` increments.
    func makeWatch() -> Int32 { state.withLock { $0.refusesWatches } ? -EMFILE : makeEvent() }

    func watchWrites(to path: String, _ watch: Int32) -> Int32 {
        state.withLock { state in
            if let failure = call(&state) { return -failure }
            guard state.files[path] != nil else { return -ENOENT }
            state.watches[path] = watch
            return 0
        }
    }

    /// Writes `text` to the limit at `path`, as another program would.
    func moveLimit(_ path: String, to text: String) {
        state.withLock { state in
            state.files[path] = text
            if let watch = state.watches[path] { state.events[watch]! += 1 }
        }
    }

    /// Removes the group in `directory`, and makes another one there with the same files. An open file of the former
    /// group answers ENODEV, and the watches of its files are gone.
    func remakeGroup(_ directory: String) {
        state.withLock { state in
            for (file, path) in state.open where path.hasPrefix(directory + "/") { state.open[file] = "gone" }
            state.watches = state.watches.filter { !$0.key.hasPrefix(directory + "/") }
        }
    }

    func wait(for files: UnsafeMutableBufferPointer<pollfd>, nanoseconds: Int64) -> Int {
        state.withLock { state in
            state.waits += 1
            if let failure = call(&state) { return -Int(failure) }
            var ready = 0
            for index in files.indices where files[index].fd >= 0 {
                let file = files[index].fd
                var found: Int16 = 0
                if let count = state.events[file] {
                    if count > 0 { found = Int16(POLLIN) }
                } else if let path = state.open[file] {
                    found = state.conditions[path] ?? 0
                    if state.clearedByPolling.contains(path) { state.conditions[path] = nil }
                    if state.queued[path] ?? 0 > 0 { found |= Int16(POLLIN) }
                    found &= files[index].events | Int16(POLLERR | POLLHUP | POLLNVAL)
                } else {
                    found = Int16(POLLNVAL)
                }
                files[index].revents = found
                if found != 0 { ready += 1 }
            }
            if ready == 0 { state.slept += nanoseconds }
            return ready
        }
    }

    var processID: Int32 { 42 }
}

/// A source on a scripted kernel. The test turns the source by hand, as the manager's loop would.
final class SourceDriver {
    let kernel: ScriptedKernel
    let source: LinuxPressureSource
    private(set) var now = Duration.zero

    init(_ kernel: ScriptedKernel, options: LinuxPressureSource.Options = .init(), environment: LinuxPressureSource.Environment = .init()) {
        self.kernel = kernel
        source = LinuxPressureSource(options: options, kernel: kernel, environment: environment)
    }

    convenience init(
        _ files: [String: String], options: LinuxPressureSource.Options = .init(), environment: LinuxPressureSource.Environment = .init()
    ) {
        self.init(ScriptedKernel(files), options: options, environment: environment)
    }

    /// Reads the source `after` a time without a wait.
    func read(after time: Duration = .zero) throws(PressureSourceError) -> PressureReading {
        now += time
        return try source.read(at: now)
    }

    /// Waits. Returns the duration according to the script.
    @discardableResult
    func wait(_ limit: Duration = .seconds(1)) -> Duration {
        let before = kernel.ask(\.slept)
        source.wait(atMost: limit)
        let slept = Duration.nanoseconds(kernel.ask(\.slept) - before)
        now += slept + .microseconds(10)
        return slept
    }

    /// Writes a text into a file.
    func set(_ path: String, _ text: String) { kernel.edit { $0.files[path] = text } }
}
