import Glibc
import Plimsoll

@testable import PlimsollSupervisor

/// A shell beside the tests that ends all processes of the tests once the tests end, for any reason.
///
/// Processes of tests are in groups of the tests' own prefix, or have a variable of this run. The signal for a parent's
/// death (PR_SET_PDEATHSIG) would not do: that signal comes when the thread that started the child ends, and threads of
/// the cooperative pool come and go. Besides, some units must outlive their supervisor's thread.
enum OrphanCleanup {
    /// The variable in the environment of each process that tests start.
    static let variable = "TEST_RUN_OWNER"

    /// This process's own value of `variable`: a number alone would belong to another process later. The first access
    /// starts the shell, once.
    static let mark: String = {
        let mark = "\(getpid())-\(ProcessTable.stat(of: getpid())?.started ?? 0)"
        setenv(variable, mark, 1)
        guard start(mark), startReaper() else { fatalError("no shell could be started that ends what tests leave behind") }
        return mark
    }()

    /// Waits for children of tests that no other thread waits for: processes that a supervisor has left running, and
    /// that have ended since. Beside a zombie Swift Testing does not see the end of exit tests.
    private static func startReaper() -> Bool {
        Thread.start("reaper") {
            let pause = Parker()
            while true {
                pause.park(atMost: .milliseconds(100))
                Orphans.reap()
            }
        }
    }

    /// The shell's script. Waits for the end of standard input, which is this process's end.
    private static let script = """
        trap '' INT TERM HUP
        read -r nothing
        for round in 1 2; do
            find /sys/fs/cgroup -depth -type d -name "plimsoll-test-$1-*" 2>/dev/null | while read -r group; do
                echo 0 2>/dev/null > "$group/cgroup.freeze"
                kill -9 $(cat "$group/cgroup.procs") 2>/dev/null
                sleep 0.1
                rmdir "$group" 2>/dev/null
            done
            for file in $(grep -lzx -- "$2" /proc/[0-9]*/environ 2>/dev/null); do
                process=${file#/proc/}
                kill -9 "${process%/environ}" 2>/dev/null
            done
        done
        """

    private static func start(_ mark: String) -> Bool {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { return false }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO)
        // A reader of the tests' output waits for the end of that output, and must not wait for the shell's end.
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0)
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0)
        func strings(_ texts: [String]) -> [UnsafeMutablePointer<CChar>?] { texts.map { strdup($0) } + [nil] }
        let arguments = strings(["sh", "-c", script, "sh", "\(getpid())", "\(variable)=\(mark)"])
        let environment = strings(["PATH=/usr/bin:/bin"])
        defer { for text in arguments + environment { free(text) } }
        var pid: pid_t = 0
        let result = posix_spawn(&pid, "/bin/sh", &actions, nil, arguments, environment)
        close(ends[0])
        return result == 0
    }
}
