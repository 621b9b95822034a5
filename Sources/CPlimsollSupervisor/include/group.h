// Operations on all processes of a group and the groups below, without heap allocation.
#pragma once

#include <sys/types.h>

/// Sends `signal` once to each process listed in the group of `directory` and below, but never to `spared`. Returns
/// the number of processes reached, or -errno if the group can't be read. SIGSTOP skips processes that are stopped
/// already, SIGCONT those that are not.
int plimsoll_group_signal(int directory, int signal, pid_t spared);

/// Returns 1 if one of the first lines of a small kernel file is `line`, 0 if not, or -errno if the file can't be read.
int plimsoll_text_has(int file, const char *line);

/// Returns 1 if /proc/self/cgroup still reads `text`. Allocates nothing.
int plimsoll_membership_is(const void *text, size_t count);
