// The guard: a process that sees the supervisor end, in whatever way, and then sets free what it had frozen (T32).
#ifndef CPLIMSOLL_SUPERVISOR_GUARD_H
#define CPLIMSOLL_SUPERVISOR_GUARD_H

#include <stdint.h>
#include <sys/types.h>

/// What the supervisor tells its guard; with `ADD`, the file to free it by comes along.
struct plimsoll_guard_record {
    uint32_t kind;
    uint64_t key;
};

enum plimsoll_guard_kind {
    /// cgroup.freeze of version 2, open for writing.
    PLIMSOLL_GUARD_UNIFIED = 1,
    /// freezer.state of version 1, open for writing.
    PLIMSOLL_GUARD_FREEZER,
    /// The directory of a group whose processes were stopped by SIGSTOP.
    PLIMSOLL_GUARD_STOPPED_GROUP,
    /// A pidfd of a process that was stopped by SIGSTOP.
    PLIMSOLL_GUARD_STOPPED_PROCESS,
    /// What has this key need not be freed any more.
    PLIMSOLL_GUARD_FORGET,
};

/// How many it can hold.
#define PLIMSOLL_GUARD_CAPACITY 1024

/// Starts it. The supervisor's end of the socket and the guard's pidfd; 0 or a negative errno.
int plimsoll_guard_start(int *socket, int *pidfd, pid_t *pid);

/// Tells it a record with a file, -1 for none, and waits for its answer at most `milliseconds`. 0, or what it answered: -ENOSPC, -EPIPE if it is gone.
int plimsoll_guard_tell(int socket, const struct plimsoll_guard_record *record, int file, int milliseconds);

#endif
