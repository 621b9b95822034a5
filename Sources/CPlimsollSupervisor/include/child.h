// Starting, watching and ending processes by file descriptor; where Glibc's overlay lacks a call. Results are 0 or more, or a negative errno.
#ifndef CPLIMSOLL_SUPERVISOR_CHILD_H
#define CPLIMSOLL_SUPERVISOR_CHILD_H

#include <sys/types.h>

/// A file descriptor for the process `pid`, readable when it has ended (pidfd_open, Linux 5.3).
int plimsoll_pidfd_open(pid_t pid);

/// Sends `signal` to the process of `pidfd`, and to no other that has its number meanwhile (pidfd_send_signal, Linux 5.1).
int plimsoll_pidfd_signal(int pidfd, int signal);

#endif
