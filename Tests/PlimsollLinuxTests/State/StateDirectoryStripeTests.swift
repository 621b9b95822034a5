import Glibc
import Plimsoll
import Synchronization
import TestSupport
import Testing

@testable import PlimsollLinux

/// Tests that a directory of states is never changed without its lock, with any delay of a thread.
@Suite(.serialized, .timeLimit(.minutes(5))) struct StateDirectoryStripeTests {
    /// The host's kernel. Notes whether the directory is locked when a file is made or changed, and calls `afterLock`
    /// behind a lock, and `afterRead` behind a read.
    final class WatchedKernel: StateKernel {
        struct State {
            var locks: Set<Int32> = []
            var unlocked: [String] = []
            var changes = 0
        }
        let state = Mutex(State())
        let afterLock = Mutex<(@Sendable () -> Void)?>(nil)
        let afterRead = Mutex<(@Sendable () -> Void)?>(nil)
        private let host = HostStateKernel()

        func open(_ path: String, _ access: StateFileAccess) -> Int32 {
            if access == .replacing || access == .changing { note(path) }
            return host.open(path, access)
        }
        /// Notes a change that needs the directory's lock.
        private func note(_ path: String) {
            state.withLock { state in
                state.changes += 1
                if state.locks.isEmpty { state.unlocked.append(path) }
            }
        }
        func names(in directory: String) -> Result<[String], KernelError> {
            let names = host.names(in: directory)
            // The last call of the lock operation.
            let act = afterLock.withLock { act in
                defer { act = nil }
                return act
            }
            act?()
            return names
        }
        func lock(_ file: Int32) -> Int32 {
            let result = host.lock(file)
            if result >= 0 { state.withLock { _ = $0.locks.insert(file) } }
            return result
        }
        func unlock(_ file: Int32) {
            state.withLock { _ = $0.locks.remove(file) }
            host.unlock(file)
        }
        func close(_ file: Int32) { host.close(file) }
        func length(_ file: Int32) -> Int { host.length(file) }
        func isOwn(_ file: Int32) -> Bool { host.isOwn(file) }
        func read(_ file: Int32, from offset: Int, into buffer: UnsafeMutableRawBufferPointer) -> Int {
            let count = host.read(file, from: offset, into: buffer)
            let act = afterRead.withLock { act in
                defer { act = nil }
                return act
            }
            act?()
            return count
        }
        func write(_ file: Int32, at offset: Int, _ bytes: UnsafeRawBufferPointer) -> Int {
            host.write(file, at: offset, bytes)
        }
        func truncate(_ file: Int32, to length: Int) -> Int32 { host.truncate(file, to: length) }
        func synchronize(_ file: Int32) -> Int32 { host.synchronize(file) }
        func rename(_ old: String, to new: String) -> Int32 {
            note(old)
            return host.rename(old, to: new)
        }
        func unlink(_ path: String) -> Int32 {
            note(path)
            return host.unlink(path)
        }
        func makeDirectory(_ path: String) -> Int32 { host.makeDirectory(path) }
        var processID: Int32 { host.processID }
    }

    /// The number of the calling thread.
    private static var ownNumber: Int32 {
        var bytes = [CChar](repeating: 0, count: 64)
        let count = readlink("/proc/thread-self", &bytes, bytes.count)
        let text = String(decoding: bytes.prefix(max(0, count)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        return text.split(separator: "/").last.flatMap { Int32($0) } ?? 0
    }

    /// True if thread `number` of this process sleeps, as a waiting thread does.
    private static func isAsleep(_ number: Int32) -> Bool {
        let file = Glibc.open("/proc/self/task/\(number)/stat", O_RDONLY | O_CLOEXEC)
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: 256)
        let count = read(file, &bytes, bytes.count)
        let text = String(decoding: bytes.prefix(max(0, count)), as: UTF8.self)
        return text.split(separator: ")").last?.split(separator: " ").first == "S"
    }

    enum Change: CaseIterable { case write, remove, setAside }

    @Test(arguments: Change.allCases)
    func `relinquishing the directory waits for a writer that holds the lock and has not begun yet`(change: Change)
        async throws
    {
        let place = TemporaryDirectory(), kernel = WatchedKernel(),
            directory = StateDirectory(place.path, kernel: kernel)
        let name = try #require(StateFileName("cart"))
        var reports: [StateStoreReport] = []
        try directory.write(name, [1, 2, 3], &reports)
        directory.relinquish()
        kernel.state.withLock { $0.changes = 0 }

        let other = Atomic<Int32>(0), isGivenUp = Atomic(false)
        // The delay holds the writer where it has the lock, until the other thread waits for the lock or has finished.
        kernel.afterLock.withLock { act in
            act = {
                _ = Plimsoll.Thread.start("relinquish") {
                    other.store(Self.ownNumber, ordering: .sequentiallyConsistent)
                    directory.relinquish()
                    isGivenUp.store(true, ordering: .sequentiallyConsistent)
                }
                var rounds = 0
                while rounds < 60_000, !isGivenUp.load(ordering: .sequentiallyConsistent) {
                    let number = other.load(ordering: .sequentiallyConsistent)
                    if number != 0, Self.isAsleep(number) { break }
                    rounds += 1
                    poll(nil, 0, 1)
                }
            }
        }
        switch change {
        case .write: try directory.write(name, [4], &reports)
        case .remove: try directory.remove(name, &reports)
        case .setAside: try directory.setAside(name, "cart", "for a test", &reports)
        }
        await until("the directory is given up") { isGivenUp.load(ordering: .sequentiallyConsistent) }
        let state = kernel.state.withLock { $0 }
        #expect(state.unlocked == [] && state.changes > 0, "\(change)")
        #expect(other.load(ordering: .sequentiallyConsistent) != 0, "the delay was injected")
    }
}
