#define _GNU_SOURCE
#include "CSystemCallKiller.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

// From the kernel's sys/ptrace.h and linux/ptrace.h, which cannot be included together everywhere.
#ifndef PTRACE_GET_SYSCALL_INFO
#define PTRACE_GET_SYSCALL_INFO 0x420e
#endif
struct call_info {
    unsigned char op;
    unsigned char pad[3];
    unsigned arch;
    unsigned long long instruction_pointer, stack_pointer, number;
    unsigned long long arguments[7];
};

static int wait_for(pid_t child, int *status) {
    int result;
    do result = waitpid(child, status, 0);
    while (result < 0 && errno == EINTR);
    return result;
}

long kill_at_system_call(const char *path, char *const arguments[], long nth, int *status) {
    pid_t child = fork();
    if (child < 0) return -1000 - errno;
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(126);
        execv(path, arguments);
        _exit(127);
    }
    bool counting = false, traced = false;
    int deliver = 0;
    for (long calls = 0;;) {
        if (wait_for(child, status) < 0) return -1000 - errno;
        if (!WIFSTOPPED(*status)) return traced ? -1 : -1000 - EPERM;
        int signal = WSTOPSIG(*status);
        deliver = 0;
        if (!traced) {
            // The stop at exec.
            traced = true;
            ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
        } else if (signal == SIGSTOP) {
            counting = true;
        } else if (signal == (SIGTRAP | 0x80)) {
            struct call_info info = {0};
            long size = ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info);
            // 1 is an entry, 2 an exit.
            if (size > 0 && info.op == 1 && ++calls == nth) {
                kill(child, SIGKILL);
                wait_for(child, status);
                return (long)info.number;
            }
        } else {
            deliver = signal;
        }
        ptrace(counting ? PTRACE_SYSCALL : PTRACE_CONT, child, NULL, (void *)(ptrdiff_t)deliver);
    }
}

void mark_phase_over(pid_t thread) { syscall(SYS_tgkill, getpid(), thread, SIGSTOP); }

pid_t calling_thread(void) { return (pid_t)syscall(SYS_gettid); }

long kill_thread_at_system_call(pid_t process, pid_t thread, int go, long nth) {
    // Only this thread is traced: neither its forked processes nor its siblings, so no unit and no guard ever stops or
    // dies with the tracer.
    if (ptrace(PTRACE_SEIZE, thread, NULL, (void *)(ptrdiff_t)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)) != 0) return -1000 - errno;
    if (ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) != 0) return -1000 - errno;
    long result = -2;
    bool counting = false;
    for (long calls = 0;;) {
        int status, waited;
        do waited = waitpid(thread, &status, __WALL);
        while (waited < 0 && errno == EINTR);
        if (waited < 0) return -1000 - errno;
        if (!WIFSTOPPED(status)) return -2;
        int signal = WSTOPSIG(status), deliver = 0;
        if (status >> 16 == PTRACE_EVENT_STOP) {
            // The stop that the interrupt has requested: from here on calls are counted.
            if (!counting && write(go, "go\n", 3) != 3) result = -1000 - EPIPE;
            counting = true;
        } else if (signal == (SIGTRAP | 0x80)) {
            struct call_info info = {0};
            long size = ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info);
            // 1 is an entry, 2 an exit.
            if (size > 0 && info.op == 1 && ++calls == nth) result = (long)info.number;
        } else if (signal == SIGSTOP) {
            result = -1;
        } else {
            deliver = signal;
        }
        if (result != -2) {
            kill(process, SIGKILL);
            // The first thread is left to the process that waits for the whole process.
            if (thread != process) while (waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status)) {}
            return result;
        }
        ptrace(PTRACE_SYSCALL, thread, NULL, (void *)(ptrdiff_t)deliver);
    }
}
