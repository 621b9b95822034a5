// The guard: a process that detects the end of the supervisor, for any reason, and then thaws what the supervisor had
// frozen (T32).
#pragma once

#include <stdint.h>
#include <sys/types.h>

/// Greatest length of a text that lifts a limit.
#define PLIMSOLL_GUARD_TEXT_SIZE 112

/// A message from the supervisor to the guard. Unless the kind is `FORGET`, the file that frees a unit is attached.
struct plimsoll_guard_record {
    uint32_t kind;
    /// Length of the text, for `TEXT`.
    uint32_t length;
    /// Echoed in the answer, so that a late answer is not attributed to another record.
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
    /// The file of a limit, open for writing, and the text that lifts the limit.
    PLIMSOLL_GUARD_TEXT,
    /// Removes the entry with this key.
    PLIMSOLL_GUARD_FORGET,
};

/// Greatest number of entries: the freezer and three limits for each of 1,000 units.
#define PLIMSOLL_GUARD_CAPACITY 4096

/// Greatest number of files that the guard can keep open.
#define PLIMSOLL_GUARD_MOST_KEPT 8

/// Starts the guard. Sets the supervisor's end of the socket, the guard's pidfd and pid. Returns 0 or a negative
/// errno. The guard keeps copies of `kept` open until all entries are released: no other process can take the locks
/// of those files earlier.
int plimsoll_guard_start(const int *kept, int kept_count, int *socket, int *pidfd, pid_t *pid);

/// Sends a record with a file (-1 for none), and waits at most `milliseconds` for the answer. Signals do not end the
/// wait. Returns 0, or an error that the guard reports, such as -ENOSPC. -EPIPE if the guard is gone. -ETIMEDOUT if
/// there is no answer: then the guard may or may not hold the file.
int plimsoll_guard_send(int socket, const struct plimsoll_guard_record *record, int file, int milliseconds);
