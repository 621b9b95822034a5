#define _GNU_SOURCE
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int plimsoll_pidfd_open(pid_t pid) {
    long file = syscall(SYS_pidfd_open, pid, 0);
    return file < 0 ? -errno : (int)file;
}

int plimsoll_pidfd_signal(int pidfd, int signal) { return syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) < 0 ? -errno : 0; }

int plimsoll_pidfd_wait(int pidfd, int blocks, int *status) {
    siginfo_t info = {0};
    int result;
    do result = waitid((idtype_t)3 /* P_PIDFD */, pidfd, &info, WEXITED | (blocks ? 0 : WNOHANG));
    while (result < 0 && errno == EINTR);
    if (result < 0) return -errno;
    if (info.si_pid == 0) return 0;
    *status = info.si_status;
    return info.si_code == CLD_EXITED ? 1 : info.si_code == CLD_DUMPED ? 3 : 2;
}

int plimsoll_inherits_children(void) {
    int inherits = 0;
    return getpid() == 1 || (prctl(PR_GET_CHILD_SUBREAPER, &inherits) == 0 && inherits);
}

pid_t plimsoll_ended_child(void) {
    siginfo_t info = {0};
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 ? info.si_pid : 0;
}

int plimsoll_reap(pid_t pid) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG) == 0 ? 0 : -errno;
}

int64_t plimsoll_milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int plimsoll_ready(int descriptor, int events, int milliseconds) {
    struct pollfd watched = {.fd = descriptor, .events = (short)events};
    int64_t deadline = milliseconds > 0 ? plimsoll_milliseconds() + milliseconds : 0;
    for (int rest = milliseconds;;) {
        int ready = poll(&watched, 1, rest);
        if (ready >= 0 || errno != EINTR) return ready > 0 ? watched.revents : 0;
        if (milliseconds <= 0) continue;
        int64_t left = deadline - plimsoll_milliseconds();
        rest = left > 0 ? (int)left : 0;
    }
}

// The child's report of a failed start. End of file without a report means that the child became the program.
struct failure {
    int step, number, entry;
};

/// The soft limit before the raise; zero if the limit was not raised.
static rlim_t usual_files;

long plimsoll_raise_file_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return -errno;
    if (limit.rlim_cur >= limit.rlim_max) return (long)limit.rlim_cur;
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0) return -errno;
    usual_files = before;
    return (long)limit.rlim_cur;
}

static void lower_file_limit(void) {
    struct rlimit limit;
    if (!usual_files || getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
    limit.rlim_cur = usual_files;
    setrlimit(RLIMIT_NOFILE, &limit);
}

// Tells if the priority was raised, and the nice value for units: the usual one, but never below 0.
static _Atomic int is_hurried, usual_nice;

int plimsoll_hurry(int nice) {
    errno = 0;
    int before = getpriority(PRIO_PROCESS, 0);
    if (before == -1 && errno) return -errno;
    if (!is_hurried) {
        usual_nice = before > 0 ? before : 0;
        is_hurried = 1;
    }
    // Applies to the calling thread, and to threads that it starts.
    if (before > nice && setpriority(PRIO_PROCESS, 0, nice) < 0) return -errno;
    return 0;
}

static void fail(int pipe, int step, int entry) {
    struct failure failure = {step, errno, entry};
    (void)!write(pipe, &failure, sizeof failure);
    _exit(127);
}

// Moves the descriptors out of the target range before any is put in place, including the pipe to the parent. Returns
// -1 on failure.
static int put_in_place(const struct plimsoll_launch *launch, int *pipe) {
    int copies[PLIMSOLL_MOST_KEPT], count = launch->kept_count;
    if (count == 0) return 0;
    for (int i = 0; i < count; i++)
        if ((copies[i] = fcntl(launch->kept[i], F_DUPFD_CLOEXEC, 3 + count)) < 0) return -1;
    int moved = fcntl(*pipe, F_DUPFD_CLOEXEC, 3 + count);
    if (moved < 0) return -1;
    *pipe = moved;
    for (int i = 0; i < count; i++)
        if (dup2(copies[i], 3 + i) < 0) return -1;
    return 0;
}

static void write_number(char *text, pid_t number) {
    char digits[11];
    int count = 0;
    do digits[count++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    while (count > 0) *text++ = digits[--count];
    *text = 0;
}

// Runs in the child with every signal blocked. Must not take locks: the parent's threads may have held them at the
// fork.
static void become(const struct plimsoll_launch *launch, int pipe, int is_entered) {
    setsid();
    // The kernel treats 0 as the pid of the writer (kernel/cgroup/cgroup.c).
    if (!is_entered && launch->group_entry >= 0 && write(launch->group_entry, "0", 1) < 0) fail(pipe, PLIMSOLL_ENTER, -1);
    for (int i = 0; i < launch->entry_count; i++)
        if (write(launch->entries[i], "0", 1) < 0) fail(pipe, PLIMSOLL_ENTER, i);
    int adjust = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (adjust >= 0) {
        (void)!write(adjust, launch->oom_score_adj, strlen(launch->oom_score_adj));
        close(adjust);
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0) fail(pipe, PLIMSOLL_OUTPUT, 0);
    // Copy both before putting either in place, since one may occupy the other's target number.
    int output = launch->output >= 0 ? fcntl(launch->output, F_DUPFD_CLOEXEC, 3) : -1;
    int errors = launch->errors >= 0 ? fcntl(launch->errors, F_DUPFD_CLOEXEC, 3) : -1;
    if (launch->output >= 0 && (output < 0 || dup2(output, 1) < 0)) fail(pipe, PLIMSOLL_OUTPUT, 1);
    if (launch->errors >= 0 && (errors < 0 || dup2(errors, 2) < 0)) fail(pipe, PLIMSOLL_OUTPUT, 2);
    // CLOSE_RANGE_CLOEXEC, Linux 5.11. On older kernels, files that the parent opened without O_CLOEXEC stay open.
    syscall(SYS_close_range, 3u, ~0u, 4u);
    if (put_in_place(launch, &pipe) < 0) fail(pipe, PLIMSOLL_OUTPUT, 3);
    // The child has a copy of the memory: the parent's variables are unaffected.
    if (launch->own_number) write_number(launch->own_number, getpid());
    if (launch->directory && chdir(launch->directory) < 0) fail(pipe, PLIMSOLL_DIRECTORY, 0);
    lower_file_limit();
    if (is_hurried) setpriority(PRIO_PROCESS, 0, usual_nice);
    struct sigaction standard = {.sa_handler = SIG_DFL};
    for (int number = 1; number < NSIG; number++) sigaction(number, &standard, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(launch->path, launch->arguments, launch->environment);
    fail(pipe, PLIMSOLL_EXEC, 0);
}

// Creates the child in the group (CLONE_INTO_CGROUP, Linux 5.7), or as close to that as the kernel allows.
static pid_t clone_into(const struct plimsoll_launch *launch, int *pidfd, int *is_entered) {
    struct clone_args arguments = {.flags = CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)pidfd, .exit_signal = SIGCHLD};
    *is_entered = 0;
    if (launch->group >= 0) {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = (uint64_t)launch->group;
        long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
        if (pid >= 0) {
            *is_entered = 1;
            return (pid_t)pid;
        }
    }
    arguments.flags = CLONE_PIDFD;
    // The size of the structure's first version (Linux 5.3).
    long pid = syscall(SYS_clone3, &arguments, CLONE_ARGS_SIZE_VER0);
    if (pid >= 0 || (errno != ENOSYS && errno != EPERM)) return (pid_t)pid;
    // Sandboxes refuse clone3, because they can't inspect the arguments.
    *pidfd = -1;
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

// Kills the child and waits for the end. Returns -1, or the pidfd if SIGKILL does not end the child now: version 1
// keeps even killed processes frozen.
static int give_up(pid_t pid, int pidfd) {
    plimsoll_pidfd_signal(pidfd, SIGKILL);
    if (!plimsoll_ready(pidfd, POLLIN, 1000)) return pidfd;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
    close(pidfd);
    return -1;
}

// Returns 1 if the process has become another program, 0 if not, -1 if that can't be read now: PF_FORKNOEXEC is cleared
// (include/linux/sched.h). begin_new_exec clears the flag before it closes descriptors, which may hang: a socket that
// lingers, whose last copy the child has.
static int has_executed(pid_t pid) {
    char text[512], path[32] = "/proc/";
    write_number(path + 6, pid);
    strcat(path, "/stat");
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t count = read(file, text, sizeof text - 1);
    close(file);
    if (count <= 0) return -1;
    text[count] = 0;
    // The name may contain anything. State, parent, group, session, terminal and its group precede the flags.
    const char *rest = strrchr(text, ')');
    for (int field = 0; rest && field < 7; field++) rest = strchr(rest + 1, ' ');
    return rest ? !(strtoul(rest + 1, NULL, 10) & 0x40) : -1;
}

// Waits until the child reports a failure or becomes the program. Returns 1 for a report or the end of the pipe, 0 if the
// time has passed, -1 if the child is the program although its pipe is open.
static int wait_for_program(pid_t child, int pipe, int limit) {
    enum { interval = 50 };
    int64_t deadline = plimsoll_milliseconds() + limit;
    for (int64_t left = limit;; left = deadline - plimsoll_milliseconds()) {
        if (left < 0) left = 0;
        if (plimsoll_ready(pipe, POLLIN, left < interval ? (int)left : interval)) return 1;
        if (has_executed(child) > 0) return -1;
        if (left == 0) return 0;
    }
}

int plimsoll_start(const struct plimsoll_launch *launch, pid_t *pid, int *pidfd, int *step, int *entry) {
    int ends[2], file = -1, is_entered;
    *step = PLIMSOLL_FORK, *entry = 0, *pidfd = -1;
    if (launch->kept_count < 0 || launch->kept_count > PLIMSOLL_MOST_KEPT) return -EINVAL;
    if (pipe2(ends, O_CLOEXEC) < 0) return -errno;
    sigset_t all, before;
    sigfillset(&all);
    // Signal handlers of the parent must not run in the child.
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t child = clone_into(launch, &file, &is_entered);
    int error = errno;
    if (child == 0) become(launch, ends[1], is_entered);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    if (child > 0 && file < 0 && (file = plimsoll_pidfd_open(child)) < 0) {
        // Without a pidfd the process could not be told from a later one with the same pid.
        error = -file;
        kill(child, SIGKILL);
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {}
        child = -1;
    }
    if (child < 0) {
        close(ends[0]);
        return -error;
    }
    struct failure failure;
    // Another process may freeze the group in the meantime. That must not block the supervisor.
    int ready = wait_for_program(child, ends[0], launch->limit);
    ssize_t count = ready < 0 ? 0 : -1;
    if (ready > 0)
        do count = read(ends[0], &failure, sizeof failure);
        while (count < 0 && errno == EINTR);
    close(ends[0]);
    // A process created in a group that was ever killed may be killed with its creation. Another one enters by itself.
    int is_stillborn = count == 0 && is_entered && has_executed(child) == 0;
    if (count == 0 && !is_stillborn) {
        *pid = child, *pidfd = file;
        return 0;
    }
    *pidfd = give_up(child, file);
    if (is_stillborn && *pidfd < 0) {
        struct plimsoll_launch again = *launch;
        again.group = -1;
        return plimsoll_start(&again, pid, pidfd, step, entry);
    }
    if (count != sizeof failure) failure = (struct failure){PLIMSOLL_STUCK, ETIMEDOUT, 0};
    *step = failure.step, *entry = failure.entry;
    return -failure.number;
}
