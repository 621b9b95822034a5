import CPlimsollSupervisor
import Glibc
import Plimsoll
import PlimsollLinux
import Synchronization

/// A queue of events from many files. Five hundred units have some two thousand files, of which hardly any is ready, so
/// the kernel keeps the list (epoll(7)).
///
/// One thread waits; any thread may send a wake-up.
final class EventQueue: Sendable {
    /// Identifies the owner of a file, by a number that the owner chose.
    typealias Token = UInt64

    enum Readiness {
        /// Data to read, a connection to accept, or the end of a process.
        case readable
        /// A change in a kernel file (POLLPRI).
        case changed
    }

    private let queue: Int32
    private let wakeup: Int32
    /// Files that the kernel has not accepted yet; each is retried.
    private let unwatched = Mutex(Unwatched())
    private static let wakeupToken = Token.max

    /// - Throws: an error if the process may open no more files.
    init() throws(SupervisorError) {
        queue = plimsoll_queue()
        wakeup = HostKernel().makeEvent()
        guard queue >= 0, wakeup >= 0 else {
            throw SupervisorError("cannot make an event queue: \(String(cString: strerror(-min(queue, wakeup))))")
        }
        // Without the wake-up file, no thread could stop a waiting one.
        let result = plimsoll_queue_watch(queue, wakeup, plimsoll_readable.rawValue, Self.wakeupToken)
        guard result == 0 else {
            throw SupervisorError("cannot make an event queue: \(String(cString: strerror(-result)))")
        }
    }

    deinit {
        close(queue)
        close(wakeup)
    }

    /// Reports `file` by `token` from `wait` from now on. If the kernel can't watch the file for lack of memory or
    /// watches, retries until the watch succeeds.
    func watch(_ file: Int32, for readiness: Readiness, _ token: Token) {
        unwatched.withLock { $0.files[file] = (readiness, token) }
        watchRest()
    }

    /// Stops watching `file`. Call this before the file is closed: a duplicate elsewhere would keep the file in the
    /// list.
    func unwatch(_ file: Int32) {
        forget(file)
        _ = plimsoll_queue_unwatch(queue, file)
    }

    /// Drops `file`, which was closed elsewhere, so another file may have the same number by now.
    func forget(_ file: Int32) { unwatched.withLock { $0.files[file] = nil } }

    /// Returns a message that a file can't be watched, and the reason, once for each series of failures.
    func takeTrouble() -> String? {
        unwatched.withLock { exchange(&$0.trouble, nil) }
    }

    /// True if some files are still to be retried. For tests.
    var hasUnwatched: Bool { unwatched.withLock { !$0.files.isEmpty } }

    private struct Unwatched {
        var files: [Int32: (readiness: Readiness, token: Token)] = [:]
        var isTroubled = false
        var trouble: String?
    }

    /// Time until the next retry.
    private static let restTime = Duration.milliseconds(100)

    /// - Returns: true if some files are still unwatched.
    @discardableResult
    private func watchRest() -> Bool {
        unwatched.withLock { unwatched in
            for (file, (readiness, token)) in unwatched.files {
                let result = plimsoll_queue_watch(
                    queue, file, readiness == .readable ? plimsoll_readable.rawValue : plimsoll_urgent.rawValue, token)
                // These errors mean that such a file can't be watched at all (epoll_ctl(2)).
                let mayPass = result != 0 && ![EPERM, EBADF, EINVAL].contains(-result)
                if !mayPass { unwatched.files[file] = nil }
                if result != 0, !unwatched.isTroubled {
                    unwatched.isTroubled = true
                    unwatched.trouble =
                        "cannot watch a file\(mayPass ? ", retried later" : ""): \(String(cString: strerror(-result)))"
                }
            }
            if unwatched.files.isEmpty { unwatched.isTroubled = false }
            return !unwatched.files.isEmpty
        }
    }

    /// Sends a wake-up that ends the current wait, or else the next.
    func ring() {
        var one: UInt64 = 1
        _ = write(wakeup, &one, 8)
    }

    /// Blocks until a file is ready, a wake-up arrives, or `limit` has passed. Then calls `body` with the tokens of the
    /// ready files.
    ///
    /// - Returns: true if a wake-up arrived.
    @discardableResult
    func wait(atMost limit: Duration?, _ body: (Token) -> Void) -> Bool {
        withUnsafeTemporaryAllocation(of: Token.self, capacity: 64) { tokens in
            let limit = watchRest() ? min(limit ?? Self.restTime, Self.restTime) : limit
            let milliseconds = limit.map(Self.milliseconds) ?? -1
            let count = plimsoll_queue_wait(queue, tokens.baseAddress, Int32(tokens.count), milliseconds)
            var isRung = false
            for token in tokens.prefix(Int(max(0, count))) {
                guard token == Self.wakeupToken else {
                    body(token)
                    continue
                }
                var rings: UInt64 = 0
                _ = read(wakeup, &rings, 8)
                isRung = true
            }
            return isRung
        }
    }

    /// Returns milliseconds, rounded up: an early wake-up would cause a needless second evaluation.
    private static func milliseconds(_ limit: Duration) -> Int32 {
        let (whole, rest) = limit.inNanoseconds.quotientAndRemainder(dividingBy: 1_000_000)
        return Int32(clamping: max(0, rest > 0 ? whole + 1 : whole))
    }
}
