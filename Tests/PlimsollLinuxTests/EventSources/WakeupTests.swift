import Glibc
import Synchronization
import Testing

@testable import Plimsoll
@testable import PlimsollLinux

/// A wakeup during the clearing of an earlier one.
@Suite struct WakeupTests {
    /// The machine's kernel, with an action before each call that empties an eventfd.
    final class Interrupting: Kernel {
        let host = HostKernel()
        let beforeDrain = Mutex<(@Sendable () -> Void)?>(nil)

        func drain(_ file: Int32) -> Int {
            let body = beforeDrain.withLock { body in
                defer { body = nil }
                return body
            }
            body?()
            return host.drain(file)
        }

        func open(_ path: String, _ access: FileAccess) -> Int32 { host.open(path, access) }
        func close(_ file: Int32) { host.close(file) }
        func read(_ file: Int32, from offset: Int, into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
            host.read(file, from: offset, into: buffer)
        }
        func write(_ file: Int32, _ bytes: UnsafeBufferPointer<UInt8>) -> Int { host.write(file, bytes) }
        func status(of path: String) -> FileStatus { host.status(of: path) }
        func connect(_ path: String) -> Int32 { host.connect(path) }
        func makeEvent() -> Int32 { host.makeEvent() }
        func makeWatch() -> Int32 { host.makeWatch() }
        func watchWrites(to path: String, _ watch: Int32) -> Int32 { host.watchWrites(to: path, watch) }
        func wait(for files: UnsafeMutableBufferPointer<pollfd>, nanoseconds: Int64) -> Int { host.wait(for: files, nanoseconds: nanoseconds) }
        var processID: Int32 { host.processID }
    }

    private let kernel = Interrupting()

    private func isReady(_ wakeup: Wakeup) -> Bool {
        var file = pollfd(fd: wakeup.file, events: Int16(POLLIN), revents: 0)
        return poll(&file, 1, 0) == 1
    }

    @Test(arguments: [true, false])
    func `a wakeup during clearing is not lost`(wasReady: Bool) {
        let wakeup = Wakeup(kernel)
        wakeup.ring()
        kernel.beforeDrain.withLock { $0 = { wakeup.ring() } }
        #expect(wasReady ? wakeup.handle(Int16(POLLIN)) : wakeup.take())
        #expect(!isReady(wakeup), "earlier wakeups are consumed")
        wakeup.ring()
        #expect(isReady(wakeup) && wakeup.take() && !wakeup.take() && !isReady(wakeup))
    }

    @Test func `a wakeup while the eventfd is replaced ends a wait, and so does the next wakeup`() {
        let wakeup = Wakeup(kernel)
        wakeup.ring()
        #expect(!wakeup.handle(Int16(POLLNVAL)) && wakeup.file == -1)
        wakeup.ring()
        #expect(wakeup.repair() && !wakeup.repair())
        wakeup.ring()
        #expect(isReady(wakeup) && wakeup.take())
    }
}
