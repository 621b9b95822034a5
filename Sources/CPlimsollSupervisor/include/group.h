// All processes of a group and the groups below it, without a byte from the heap.
#ifndef CPLIMSOLL_SUPERVISOR_GROUP_H
#define CPLIMSOLL_SUPERVISOR_GROUP_H

#include <sys/types.h>

/// Sends `signal` once to each process listed in the group of `directory` and below it, but never to `spared`.
/// How many it reached; -errno if the group can't be read. SIGSTOP passes over those that stand still already, SIGCONT over those that don't.
int plimsoll_group_signal(int directory, int signal, pid_t spared);

/// Whether one of the lines at the beginning of a small file of the kernel is `line`.
int plimsoll_text_has(int file, const char *line);

/// Whether /proc/self/cgroup still reads `text`: no allocation.
int plimsoll_membership_is(const void *text, size_t count);

#endif
