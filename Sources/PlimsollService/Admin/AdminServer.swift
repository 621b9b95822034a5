#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll
import PlimsollLinux
import Synchronization

/// A listening socket and the two threads that serve it, from start to stop.
///
/// The threads and the caller of `stop()` share `isStopped` and, under a lock, the answers of finished changes. All
/// connection state belongs to the loop's thread.
final class AdminServer: Sendable {
    let socket: PrivateSocket
    let handler: AdminCommandHandler
    let bounds: AdminEndpoint.Bounds
    let time: Timekeeper
    let tally: AdminTally
    let changeWorker = AdminChangeWorker()
    let kernel = HostKernel()
    /// The eventfd that wakes the loop.
    let wakeup: Int32
    private let finished = Mutex<[(connection: UInt64, line: [UInt8])]>([])
    // Acquire/release ordering: a thread that sees the stop also sees all writes before the stop.
    private let stopped = Atomic<Bool>(false)

    var path: String { socket.path }
    var isStopped: Bool { stopped.load(ordering: .acquiring) }

    init(path: String, handler: AdminCommandHandler, bounds: AdminEndpoint.Bounds, time: Timekeeper, tally: AdminTally)
        throws(AdminError)
    {
        (self.handler, self.bounds, self.time, self.tally) = (handler, bounds, time, tally)
        guard path.hasPrefix("/") else {
            throw AdminError(
                .path,
                "cannot listen at the admin socket \"\(path)\" because its path is not absolute and the working directory may change; begin it with /"
            )
        }
        do { socket = try PrivateSocket(at: path) } catch { throw AdminError(error) }
        wakeup = kernel.makeEvent()
        guard wakeup >= 0 else {
            throw AdminError(
                .failed,
                "cannot make an eventfd for the admin socket at \(path): \(String(cString: strerror(-wakeup))); raise the limit of open files (RLIMIT_NOFILE)"
            )
        }
    }

    deinit { if wakeup >= 0 { close(wakeup) } }

    func start() throws(AdminError) {
        let isServed = Thread.start("plimsoll-admin") { [self] in AdminLoop(self).run() }
        let hasHands =
            isServed
            && Thread.start("plimsoll-adm-do") { [self] in
                changeWorker.run(handler) { connection, line in
                    finished.withLock { $0.append((connection, line)) }
                    ring()
                }
            }
        guard hasHands else {
            stop()
            throw AdminError(
                .failed,
                "cannot start a thread for the admin socket at \(path); check the limit of processes (pids.max, RLIMIT_NPROC)"
            )
        }
    }

    func stop() {
        socket.remove()
        stopped.store(true, ordering: .releasing)
        changeWorker.stop()
        ring()
    }

    /// Wakes the loop: ends the current wait, or else the next one.
    func ring() {
        withUnsafeTemporaryAllocation(of: UInt64.self, capacity: 1) { one in
            one[0] = 1
            one.withMemoryRebound(to: UInt8.self) { _ = kernel.write(wakeup, UnsafeBufferPointer($0)) }
        }
    }

    /// Removes and returns the answers of the changes finished since the last call.
    func takeFinished() -> [(connection: UInt64, line: [UInt8])] {
        finished.withLock { exchange(&$0, []) }
    }
}
#endif
