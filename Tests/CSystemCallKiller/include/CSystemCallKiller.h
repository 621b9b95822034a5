// Ends a child process at a chosen system call, and sends what a hostile process would.
#ifndef CSYSTEM_CALL_KILLER_H
#define CSYSTEM_CALL_KILLER_H

#include <sys/types.h>

/// Starts `path`, lets it run until it stops itself (SIGSTOP), and kills it at the entry of the `nth` system call after that, counted from 1: that
/// one is not carried out.
///
/// Returns the number of that system call; -1 if the child ended before, with its wait status in `status`; -1000 - errno if it could not be traced.
long kill_at_system_call(const char *path, char *const arguments[], long nth, int *status);

/// Kills `process` at the entry of the `nth` system call that its thread `thread` makes from now on, counted from 1: that one is not carried out. Once calls
/// are counted, the line `go` is written to the descriptor `go`. Other threads and processes that it starts are not traced.
///
/// Returns the number of that system call; -1 if the thread marked the end of the phase before, when the process is killed there; -2 if the thread ended by
/// itself; -1000 - errno if it could not be traced. The process is still to be waited for.
long kill_thread_at_system_call(pid_t process, pid_t thread, int go, long nth);

/// Tells whoever traces `thread` of this process that what is counted is over.
void mark_phase_over(pid_t thread);

/// The calling thread's number.
pid_t calling_thread(void);

/// A socket that sends datagrams and never waits; negative errno.
int hostile_datagrams(void);

/// A connection to the socket at `path` that never waits; negative errno.
int hostile_connect(const char *path);

/// Sends `text`, to `path` unless that is null, with `descriptor` (SCM_RIGHTS) unless that is negative. 0 or negative errno.
int hostile_send(int socket, const char *path, const char *text, int descriptor);

#endif
