@preconcurrency package import Glibc
import Plimsoll

/// A process that this process started, and ends by process id.
package final class ChildProcess {
    /// The end of a process.
    package enum Ending: Hashable {
        case exited(Int32)
        case signalled(Int32)

        /// Exit status as a shell reports it: the status, or 128 and the signal.
        package var status: Int32 {
            switch self {
            case .exited(let status): status
            case .signalled(let signal): 128 + signal
            }
        }

        package init(waitStatus status: Int32) {
            let signal = status & 0x7f
            self = signal == 0 ? .exited((status >> 8) & 0xff) : .signalled(signal)
        }
    }

    package let pid: pid_t
    /// Standard output of the process, if requested.
    package let output: LineReader?
    package private(set) var ending: Ending?
    /// Write end of the child's standard input. Closing the pipe tells the child that the parent is gone, however the
    /// parent ended.
    private var parentPipe: Int32?

    /// Path of this program itself, valid even if the program's file has been replaced meanwhile.
    package static let itself = "/proc/self/exe"

    /// Starts `path` with `arguments` (the first is the name). Signal dispositions are those that a shell would
    /// leave.
    ///
    /// - Parameters:
    ///   - readsOutput: true if standard output goes to `output` instead of this process's standard output.
    ///   - endsWithParent: true if standard input is a pipe that ends with this process.
    package init(_ path: String, _ arguments: [String], readsOutput: Bool = false, endsWithParent: Bool = false) throws
    {
        let out = readsOutput ? try Self.pipe() : nil
        let parentPipe = endsWithParent ? try Self.pipe() : nil
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        if let out { posix_spawn_file_actions_adddup2(&actions, out.write, STDOUT_FILENO) }
        if let parentPipe { posix_spawn_file_actions_adddup2(&actions, parentPipe.read, STDIN_FILENO) }

        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        // SIGHUP stays unchanged: `nohup plimsoll run …` means the command, too.
        var defaults = sigset_t()
        sigemptyset(&defaults)
        for signal in [SIGINT, SIGTERM, SIGPIPE, SIGCHLD] { sigaddset(&defaults, signal) }
        posix_spawnattr_setsigdefault(&attributes, &defaults)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))

        var argv: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) }
        argv.append(nil)
        defer { for argument in argv { free(argument) } }
        var pid: pid_t = 0
        let result = posix_spawn(&pid, path, &actions, &attributes, argv, environ)
        if let out { close(out.write) }
        if let parentPipe { close(parentPipe.read) }
        guard result == 0 else {
            if let out { close(out.read) }
            if let parentPipe { close(parentPipe.write) }
            throw Failure.failed("cannot start \(path): \(String(cString: strerror(result)))")
        }
        self.pid = pid
        self.parentPipe = parentPipe?.write
        output = out.map { LineReader(owning: $0.read) }
    }

    /// Ends a process that ends with this one: left alone, the ended process would keep its number.
    deinit {
        guard let parentPipe else { return }
        close(parentPipe)
        signal(SIGKILL)
        waitForEnd()
    }

    private static func pipe() throws -> (read: Int32, write: Int32) {
        var ends: [Int32] = [-1, -1]
        // Close-on-exec: two children side by side must not hold each other's pipe.
        guard Glibc.pipe(&ends) == 0 else {
            throw Failure.failed("cannot make a pipe: \(String(cString: strerror(errno)))")
        }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        return (ends[0], ends[1])
    }

    /// Sends a signal, if the process still runs.
    package func signal(_ number: Int32) {
        if ending == nil { kill(pid, number) }
    }

    /// Write end of the process's standard input; -1 if the process does not end with this process.
    package var input: Int32 { parentPipe ?? -1 }

    /// Writes a line to the process's standard input, if the process is connected by a pipe.
    func send(_ line: String) {
        if let parentPipe { Output.write(line + "\n", to: parentPipe) }
    }

    /// Returns the ending, if the process has ended.
    @discardableResult
    package func poll() -> Ending? { wait(WNOHANG) }

    /// Waits for the end of the process.
    @discardableResult
    package func waitForEnd() -> Ending { wait(0) ?? .signalled(SIGKILL) }

    /// Closes the pipe, waits up to `grace` for the process to end by itself, then kills the process.
    @discardableResult
    package func end(within grace: Duration) -> Ending {
        if let parentPipe { close(parentPipe) }
        parentPipe = nil
        let deadline = SteadyClock.now + grace
        while poll() == nil, SteadyClock.now < deadline { SteadyClock.sleep(.milliseconds(5)) }
        signal(SIGKILL)
        return waitForEnd()
    }

    private func wait(_ flags: Int32) -> Ending? {
        if let ending { return ending }
        var status: Int32 = 0
        var result = waitpid(pid, &status, flags)
        while result == -1 && errno == EINTR { result = waitpid(pid, &status, flags) }
        if result == pid { ending = Ending(waitStatus: status) }
        return ending
    }
}
