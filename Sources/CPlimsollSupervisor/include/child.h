// Starting, watching and ending processes by file descriptor, where Glibc's overlay lacks a call. Results are 0 or
// more, or a negative errno.
#pragma once

#include "group.h"
#include "guard.h"
#include <stdint.h>
#include <sys/types.h>

/// Opens a file descriptor for the process `pid`, readable when the process has ended (pidfd_open, Linux 5.3).
int plimsoll_pidfd_open(pid_t pid);

/// Sends `signal` to the process of `pidfd`, never to a later process with the same pid (pidfd_send_signal, Linux
/// 5.1).
int plimsoll_pidfd_signal(int pidfd, int signal);

/// Returns how the child of `pidfd` ended: 1 with the exit status, 2 with the fatal signal, 3 likewise with a core
/// dump, or 0 while the child runs. Waits for the end if `blocks`. -ECHILD if the process is not a child, or the
/// status was read already (waitid, P_PIDFD, Linux 5.4).
int plimsoll_pidfd_wait(int pidfd, int blocks, int *status);

/// Waits until the descriptor is ready for `events` or `milliseconds` have passed (-1: for ever). Signals do not end
/// the wait. Returns the ready events, 0 for none.
int plimsoll_ready(int descriptor, int events, int milliseconds);

/// Returns 1 if orphaned processes become this process's children: as the first process of a namespace, or by
/// PR_SET_CHILD_SUBREAPER.
int plimsoll_inherits_children(void);

/// Returns a child that has ended and was not waited for, without waiting for the child; 0 if there is none.
pid_t plimsoll_ended_child(void);

/// Waits for the child `pid` if that child has ended. Returns 0 or a negative errno.
int plimsoll_reap(pid_t pid);

/// Returns the monotonic time (CLOCK_MONOTONIC) in milliseconds.
int64_t plimsoll_milliseconds(void);

/// The step at which a start failed.
enum plimsoll_step { PLIMSOLL_FORK = 1, PLIMSOLL_ENTER, PLIMSOLL_OUTPUT, PLIMSOLL_DIRECTORY, PLIMSOLL_EXEC, PLIMSOLL_STUCK };

/// A program to start.
struct plimsoll_launch {
    const char *path;
    char *const *arguments;
    char *const *environment;
    /// Working directory; NULL for the parent's.
    const char *directory;
    /// Standard output and standard error; -1 for the parent's.
    int output, errors;
    /// The directory of the version 2 group; -1 for none.
    int group;
    /// `entries` are the `cgroup.procs` files of the other groups, open for writing. `group_entry` is that of the
    /// version 2 group, used when `clone3` can't create the child there, or the kernel kills the child for that.
    const int *entries;
    int entry_count;
    int group_entry;
    /// The kernel's preference for killing the process. Without a value the process would inherit the supervisor's
    /// protection.
    const char *oom_score_adj;
    /// Greatest time until the child becomes the program, in milliseconds.
    int limit;
    /// Descriptors that become 3 and following, in this order; at most `PLIMSOLL_MOST_KEPT`.
    const int *kept;
    int kept_count;
    /// The place in `environment` for the pid, with a terminating zero: 11 bytes. NULL for none.
    char *own_number;
};

#define PLIMSOLL_MOST_KEPT 64

/// Starts the program in all groups before the first instruction, in a new session. No signal is blocked, handled or
/// ignored, and only the first three descriptors and the kept ones are open (before Linux 5.11 also files that the
/// parent opened without O_CLOEXEC). The program outlives the parent. Returns 0, or a negative errno with the failed
/// step and the index of the entry. `pidfd` is then -1, or that of a killed process that is still to be waited for.
int plimsoll_start(const struct plimsoll_launch *launch, pid_t *pid, int *pidfd, int *step, int *entry);

/// Raises this process's limit on open files to the maximum (RLIMIT_NOFILE); each unit needs about ten. Started
/// programs get the former limit, because programs that use select(2) can't handle more. Returns the limit or a
/// negative errno.
long plimsoll_raise_file_limit(void);

/// Raises the priority of the calling thread, and of threads that it starts (nice, -20 to 19). Programs that
/// `plimsoll_start` starts afterwards run at the usual nice value, 0 or more. Returns 0, also if the nice value is as
/// low already, or a negative errno.
int plimsoll_hurry(int nice);
