import CPlimsollSupervisor
import Glibc
import Plimsoll
import Synchronization

/// Files that are waited for, all at once: five hundred units have some two thousand, of which hardly any is ready, so the kernel keeps the list (epoll(7)).
///
/// One thread waits; any thread may ring.
final class EventQueue: Sendable {
    /// What a file belongs to: a number that its owner chose.
    typealias Token = UInt64

    enum Readiness {
        /// There is something to read, somebody to accept, or the process has ended.
        case readable
        /// A file of the kernel's says something else (POLLPRI).
        case changed
    }

    private let queue: Int32
    private let bell: Int32
    /// What the kernel has not taken yet, and is asked to take again.
    private let unwatched = Mutex(Unwatched())
    private static let bellToken = Token.max

    /// - Throws: if the process may open no more files.
    init() throws(SupervisorError) {
        queue = plimsoll_queue()
        bell = plimsoll_bell()
        guard queue >= 0, bell >= 0 else {
            throw SupervisorError("no event queue: \(String(cString: strerror(-min(queue, bell))))")
        }
        // Without it nobody could stop what waits here.
        let result = plimsoll_queue_watch(queue, bell, plimsoll_readable.rawValue, Self.bellToken)
        guard result == 0 else { throw SupervisorError("no event queue: \(String(cString: strerror(-result)))") }
    }

    deinit {
        close(queue)
        close(bell)
    }

    /// From now on `wait` tells of `file` by `token`: if the kernel can't watch it now, for want of memory or of watches, as soon as it can.
    func watch(_ file: Int32, for readiness: Readiness, _ token: Token) {
        unwatched.withLock { $0.files[file] = (readiness, token) }
        watchRest()
    }

    /// Not any more. Before it is closed: a duplicate of it elsewhere would keep it in the list.
    func unwatch(_ file: Int32) {
        forget(file)
        _ = plimsoll_queue_unwatch(queue, file)
    }

    /// `file` was closed elsewhere, so its number may be another's.
    func forget(_ file: Int32) { unwatched.withLock { $0.files[file] = nil } }

    /// That a file can't be watched, and why, once for each such time.
    func takeTrouble() -> String? {
        unwatched.withLock { unwatched in
            defer { unwatched.trouble = nil }
            return unwatched.trouble
        }
    }

    /// Whether the kernel is to be asked again. For tests.
    var hasUnwatched: Bool { unwatched.withLock { !$0.files.isEmpty } }

    private struct Unwatched {
        var files: [Int32: (readiness: Readiness, token: Token)] = [:]
        var isTroubled = false
        var trouble: String?
    }

    /// How long until the kernel is asked again.
    private static let restTime = Duration.milliseconds(100)

    /// - Returns: whether some files are not watched still.
    @discardableResult
    private func watchRest() -> Bool {
        unwatched.withLock { unwatched in
            for (file, (readiness, token)) in unwatched.files {
                let result = plimsoll_queue_watch(
                    queue, file, readiness == .readable ? plimsoll_readable.rawValue : plimsoll_urgent.rawValue, token)
                // These say that such a file can't be watched at all (epoll_ctl(2)).
                let mayPass = result != 0 && ![EPERM, EBADF, EINVAL].contains(-result)
                if !mayPass { unwatched.files[file] = nil }
                if result != 0, !unwatched.isTroubled {
                    unwatched.isTroubled = true
                    unwatched.trouble =
                        "a file can't be watched\(mayPass ? ", which is tried again" : ""): \(String(cString: strerror(-result)))"
                }
            }
            if unwatched.files.isEmpty { unwatched.isTroubled = false }
            return !unwatched.files.isEmpty
        }
    }

    /// Ends a wait, the present one or else the next.
    func ring() {
        var one: UInt64 = 1
        _ = write(bell, &one, 8)
    }

    /// Blocks until a file is ready, somebody rings, or `limit` has passed; then calls `body` with the tokens of what is ready.
    ///
    /// - Returns: whether somebody rang.
    @discardableResult
    func wait(atMost limit: Duration?, _ body: (Token) -> Void) -> Bool {
        withUnsafeTemporaryAllocation(of: Token.self, capacity: 64) { tokens in
            // Rounded up: a moment too early would be a second look for nothing.
            let limit = watchRest() ? min(limit ?? Self.restTime, Self.restTime) : limit
            let milliseconds = limit.map { Int32(clamping: max(0, ($0.inNanoseconds + 999_999) / 1_000_000)) } ?? -1
            let count = plimsoll_queue_wait(queue, tokens.baseAddress, Int32(tokens.count), milliseconds)
            var isRung = false
            for token in tokens.prefix(Int(max(0, count))) {
                guard token == Self.bellToken else {
                    body(token)
                    continue
                }
                var rings: UInt64 = 0
                _ = read(bell, &rings, 8)
                isRung = true
            }
            return isRung
        }
    }
}
