// Starting, watching and ending processes by file descriptor; where Glibc's overlay lacks a call. Results are 0 or more, or a negative errno.
#ifndef CPLIMSOLL_SUPERVISOR_CHILD_H
#define CPLIMSOLL_SUPERVISOR_CHILD_H

#include "group.h"
#include "guard.h"
#include <stdint.h>
#include <sys/types.h>

/// A file descriptor for the process `pid`, readable when it has ended (pidfd_open, Linux 5.3).
int plimsoll_pidfd_open(pid_t pid);

/// Sends `signal` to the process of `pidfd`, and to no other that has its number meanwhile (pidfd_send_signal, Linux 5.1).
int plimsoll_pidfd_signal(int pidfd, int signal);

/// How the child of `pidfd` ended: 1 and its status, 2 and the signal that killed it, 3 likewise with a core dump; 0 while it runs.
/// Waits for the end if `blocks`. -ECHILD if it is no child, or its status was taken already (waitid, P_PIDFD, Linux 5.4).
int plimsoll_pidfd_wait(int pidfd, int blocks, int *status);

/// Waits until the descriptor is ready for `events`, or `milliseconds` have passed (-1: for ever), whatever signals come meanwhile.
/// What it is ready for, 0 for nothing.
int plimsoll_ready(int descriptor, int events, int milliseconds);

/// Whether processes whose parent has ended become this process's children: as the first one of a namespace, or by PR_SET_CHILD_SUBREAPER.
int plimsoll_inherits_children(void);

/// A child that has ended and was not waited for, which it stays; 0 if there is none.
pid_t plimsoll_ended_child(void);

/// Waits for the child `pid`, if that has ended. 0 or a negative errno.
int plimsoll_reap(pid_t pid);

/// The time of a clock that only goes on (CLOCK_MONOTONIC), in milliseconds.
int64_t plimsoll_milliseconds(void);

/// What a start got as far as.
enum plimsoll_step { PLIMSOLL_FORK = 1, PLIMSOLL_ENTER, PLIMSOLL_OUTPUT, PLIMSOLL_DIRECTORY, PLIMSOLL_EXEC, PLIMSOLL_STUCK };

/// A program to start.
struct plimsoll_launch {
    const char *path;
    char *const *arguments;
    char *const *environment;
    /// NULL: the parent's.
    const char *directory;
    /// -1: the parent's.
    int output, errors;
    /// The directory of its version 2 group; -1 for none.
    int group;
    /// `cgroup.procs` of its other groups, open for writing; and of the version 2 group where `clone3` can't put it there.
    const int *entries;
    int entry_count;
    int group_entry;
    /// How readily the kernel kills it: without this it would have the supervisor's protection.
    const char *oom_score_adj;
    /// How long it may take to become the program, in milliseconds.
    int limit;
    /// Become its descriptors from 3 on, in this order; at most `PLIMSOLL_MOST_KEPT`.
    const int *kept;
    int kept_count;
    /// Where in `environment` its number is written, with a zero behind it: room for 11 bytes. NULL for nowhere.
    char *own_number;
};

#define PLIMSOLL_MOST_KEPT 64

/// Starts it in all its groups before its first instruction, in a session of its own, with no signal blocked, handled or ignored, and no descriptor but
/// the first three. It outlives its parent. 0, or a negative errno with the step that failed and which of the entries it was;
/// `pidfd` then is -1, or of a process that was killed and is still to be waited for.
int plimsoll_start(const struct plimsoll_launch *launch, pid_t *pid, int *pidfd, int *step, int *entry);

/// Lets this process open as many files as it may (RLIMIT_NOFILE), some ten for each unit; what it starts has the limit of before, as programs that use
/// select(2) can't cope with more. How many, or a negative errno.
long plimsoll_raise_file_limit(void);

/// Lets the calling thread, and those that it starts, have processors before others (nice, -20 to 19). What `plimsoll_start` starts afterwards runs as usual,
/// at 0 or more. 0, also where it is as low already, or a negative errno.
int plimsoll_hurry(int nice);

#endif
