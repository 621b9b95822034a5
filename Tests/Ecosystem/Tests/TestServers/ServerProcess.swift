public import Foundation
import Synchronization
import Testing

/// A server program that a test runs on loopback, or on a socket in the test's own directory.
///
/// Waits for the end of a program suspend the caller: on two processors, two tests that each block a thread of the
/// cooperative pool stop all others.
public final class ServerProcess: Sendable {
    /// Folders of programs that are not meant for users.
    private static let folders = [
        "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/16/bin",
    ]

    /// Returns the path of a program; `nil` if the program is not installed.
    public static func find(_ program: String) -> String? {
        folders.map { $0 + "/" + program }.first { FileManager.default.isExecutableFile(atPath: $0) }
    }

    private let command: [String]
    private let child: Mutex<Child>

    /// Starts `command`, an absolute path and its arguments. The output goes to `log`.
    public init(_ command: [String], log: URL) throws {
        self.command = command
        child = Mutex(try Child(command, log: log))
    }

    deinit { signal(SIGKILL) }

    /// Starts the program again, with the same arguments.
    public func start(log: URL) throws {
        let next = try Child(command, log: log)
        child.withLock { $0 = next }
    }

    /// Ends the server as an operator would, and returns after the end.
    ///
    /// - Returns: The exit status, or the negated signal that ended the server; `nil` if the server had ended before.
    @discardableResult public func stop() async -> Int32? { await end(SIGTERM) }

    /// Ends the server at once, in any state, and returns after the end.
    public func kill() async { _ = await end(SIGKILL) }

    /// Freezes the server, or thaws the server. A frozen server has connections and answers no request. Returns from a
    /// freeze when all threads of the server have stopped.
    public func freeze(_ isFrozen: Bool) {
        signal(isFrozen ? SIGSTOP : SIGCONT)
        if isFrozen { child.withLock { $0 }.blockUntilStopped() }
    }

    /// Sends a signal if the program runs, and does not wait.
    public func signal(_ signal: Int32) { _ = child.withLock { $0.signal(signal) } }

    /// True while the program runs.
    public var isRunning: Bool { child.withLock { $0.isRunning } }

    private func end(_ signal: Int32) async -> Int32? {
        let child = child.withLock { $0 }
        guard child.signal(signal) else { return nil }
        return await child.ended()
    }

    /// Runs a program to its end.
    ///
    /// - Returns: The exit status, or the negated signal that ended the program.
    public static func run(_ command: [String], log: URL) async throws -> Int32 { try await Child(command, log: log).ended() }
}

/// A running program. A thread of its own waits for the end, so that the kernel's record of the process does not stay.
///
/// Foundation's `Process` is not used. `Process` learns of the end by a socket that the program's children inherit, and
/// so waits for children that outlive the program, such as those of a killed PostgreSQL.
private final class Child: Sendable {
    /// glibc's `posix_spawn_file_actions_addclosefrom_np` (2.34), which the overlay's headers leave out. A program must
    /// not hold the sockets of other tests, which then would not close.
    private static let closeFrom = unsafeBitCast(
        dlsym(nil, "posix_spawn_file_actions_addclosefrom_np"),
        to: (@convention(c) (UnsafeMutablePointer<posix_spawn_file_actions_t>, Int32) -> Int32).self)

    private enum State {
        case running(pid_t, [CheckedContinuation<Int32, Never>])
        case ended(Int32)
    }

    private let state: Mutex<State>

    init(_ command: [String], log: URL) throws {
        var actions = posix_spawn_file_actions_t(), attributes = posix_spawnattr_t()
        posix_spawn_file_actions_init(&actions)
        posix_spawnattr_init(&attributes)
        defer {
            posix_spawn_file_actions_destroy(&actions)
            posix_spawnattr_destroy(&attributes)
        }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, 1, log.path, O_WRONLY | O_CREAT | O_TRUNC, 0o644)
        posix_spawn_file_actions_adddup2(&actions, 1, 2)
        _ = Self.closeFrom(&actions, 3)
        // No signal is blocked in the program, even if the starting thread has blocked some.
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
        let arguments = command.map { strdup($0) } + [nil]
        defer { arguments.forEach { free($0) } }
        var child: pid_t = 0
        let error = posix_spawn(&child, command[0], &actions, &attributes, arguments, environ)
        if error != 0 { throw POSIXError(POSIXErrorCode(rawValue: error) ?? .EIO) }
        state = Mutex(.running(child, []))
        Thread.detachNewThread { [self, child] in
            // The id stays the child's until the kernel's record is removed. `signal` must not run in the middle of the
            // removal.
            var info = siginfo_t()
            while waitid(P_PID, id_t(child), &info, WEXITED | WNOWAIT) != 0, errno == EINTR {}
            end(child)
        }
    }

    private func end(_ child: pid_t) {
        let (waiting, result): ([CheckedContinuation<Int32, Never>], Int32) = state.withLock { state in
            var status: Int32 = 0
            waitpid(child, &status, 0)
            let result = status & 0x7f == 0 ? status >> 8 & 0xff : -(status & 0x7f)
            guard case .running(_, let waiting) = state else { return ([], result) }
            state = .ended(result)
            return (waiting, result)
        }
        for waiter in waiting { waiter.resume(returning: result) }
    }

    var isRunning: Bool { state.withLock { if case .running = $0 { true } else { false } } }

    /// Returns false if the program has ended.
    @discardableResult func signal(_ signal: Int32) -> Bool {
        state.withLock { state in
            guard case .running(let child, _) = state else { return false }
            return kill(child, signal) == 0
        }
    }

    /// Blocks the calling thread until the program has stopped after `SIGSTOP`, or has ended. One thread of the program
    /// receives the signal and stops the others, which go on until then.
    func blockUntilStopped() {
        blockUntil("the stop of the program") {
            state.withLock { state in
                guard case .running(let child, _) = state else { return true }
                var info = siginfo_t()
                // With WNOWAIT the kernel reports the stop until the program goes on.
                let error = waitid(P_PID, id_t(child), &info, WSTOPPED | WNOHANG | WNOWAIT)
                return error != 0 || info.si_signo == SIGCHLD
            }
        }
    }

    func ended() async -> Int32 {
        await withCheckedContinuation { continuation in
            let result: Int32? = state.withLock { state in
                switch state {
                case .running(let child, let waiting):
                    state = .running(child, waiting + [continuation])
                    return nil
                case .ended(let result): return result
                }
            }
            if let result { continuation.resume(returning: result) }
        }
    }
}

/// A directory for one test, removed with its owner.
public final class TemporaryDirectory: Sendable {
    public let url: URL

    public init(_ name: String) throws {
        // Short: a socket's path has 107 bytes.
        url = FileManager.default.temporaryDirectory.appendingPathComponent("plimsoll-\(name)-\(UInt32.random(in: 0 ... .max))")
        try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o755])
    }

    deinit { try? FileManager.default.removeItem(at: url) }

    public func path(_ name: String) -> String { url.appendingPathComponent(name).path }
}

/// Yields the processor, for a thread that a test blocks.
public func yieldThread() { _ = sched_yield() }
