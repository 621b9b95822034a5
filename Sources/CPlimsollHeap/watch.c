// The end of a child, seen while its memory is still there.
#include "internal.h"

#ifdef PLIMSOLL_LINUX

#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

/// Lets a stopped child go on (ptrace(2)): `status` is that of wait(2). A signal that the child was about to get is
/// passed on. A child that a signal has stopped stays so.
static void go_on(pid_t child, int status) {
    int event = status >> 16, number = WSTOPSIG(status);
    bool is_stopped = event == PTRACE_EVENT_STOP
        && (number == SIGSTOP || number == SIGTSTP || number == SIGTTIN || number == SIGTTOU);
    // A child that has been killed meanwhile is no error: the next wait tells.
    if (is_stopped) (void)ptrace(PTRACE_LISTEN, child, NULL, NULL);
    else (void)ptrace(PTRACE_CONT, child, NULL, (void *)(intptr_t)(event ? 0 : number));
}

/// Waits for a change of the child's state. Returns 0 or an errno.
static int wait_for(pid_t child, int *status, int flags) {
    while (waitpid(child, status, flags) < 0)
        if (errno != EINTR) return errno;
    return 0;
}

int plimsoll_census_watch(int process, void (*before_end)(void *), void *context, int *status) {
    *status = -1;
    int failure = wait_for(process, status, WUNTRACED);
    if (failure || !WIFSTOPPED(*status)) return failure;
    int refusal = ptrace(PTRACE_SEIZE, process, NULL, (void *)PTRACE_O_TRACEEXIT) ? errno : 0;
    kill(process, SIGCONT);
    for (;;) {
        failure = wait_for(process, status, __WALL);
        if (failure) return failure;
        if (!WIFSTOPPED(*status)) return refusal;
        if (*status >> 16 == PTRACE_EVENT_EXIT) before_end(context);
        go_on(process, *status);
    }
}

#endif
