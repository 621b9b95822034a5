// The guard: a process that sees the supervisor end, in whatever way, and then sets free what it had frozen (T32).
#ifndef CPLIMSOLL_SUPERVISOR_GUARD_H
#define CPLIMSOLL_SUPERVISOR_GUARD_H

#include <stdint.h>
#include <sys/types.h>

/// The longest text that a file is set free by.
#define PLIMSOLL_GUARD_TEXT_SIZE 112

/// What the supervisor tells its guard; unless it is `FORGET`, the file to free a unit by comes along.
struct plimsoll_guard_record {
    uint32_t kind;
    /// Of `TEXT`: how long that is.
    uint32_t length;
    /// Echoed in the answer: an answer that comes late is not taken for another record's.
    uint64_t key;
    char text[PLIMSOLL_GUARD_TEXT_SIZE];
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
    /// A limit, open for writing, and the text that lifts it.
    PLIMSOLL_GUARD_TEXT,
    /// What has this key need not be freed any more.
    PLIMSOLL_GUARD_FORGET,
};

/// How many it can hold: of each of 1,000 units its freezer and three limits.
#define PLIMSOLL_GUARD_CAPACITY 4096

/// How many files it can keep open.
#define PLIMSOLL_GUARD_MOST_KEPT 8

/// Starts it. The supervisor's end of the socket and the guard's pidfd; 0 or a negative errno.
/// It keeps copies of `kept` open until it has set free all that it holds: what they lock is not another's before.
int plimsoll_guard_start(const int *kept, int kept_count, int *socket, int *pidfd, pid_t *pid);

/// Tells it a record with a file, -1 for none, and waits for its answer at most `milliseconds`, whatever signals come meanwhile.
/// 0, or what it answered: -ENOSPC; -EPIPE if it is gone, -ETIMEDOUT if it says nothing: whether it holds the file isn't known then.
int plimsoll_guard_tell(int socket, const struct plimsoll_guard_record *record, int file, int milliseconds);

#endif
