// Ends a child process at a chosen system call, and sends messages as a hostile process would.
#ifndef CSYSTEM_CALL_KILLER_H
#define CSYSTEM_CALL_KILLER_H

#include <sys/types.h>

/// Starts `path`, runs the program until the program stops itself (SIGSTOP), and kills the program at the entry of the
/// `nth` system call after that, counted from 1: that call is not carried out.
///
/// Returns the number of that system call; -1 if the child ended before, with the wait status in `status`; -1000 -
/// errno if tracing failed.
long kill_at_system_call(const char *path, char *const arguments[], long nth, int *status);

/// Kills `process` at the entry of the `nth` system call of the thread `thread` from now on, counted from 1: that call
/// is not carried out. Once calls are counted, the line `go` is written to the descriptor `go`. Other threads, and
/// processes that the thread starts, are not traced.
///
/// Returns the number of that system call; -1 if the thread marked the end of the phase before, where the process is
/// killed; -2 if the thread ended without a kill; -1000 - errno if tracing failed. The caller must still wait for the
/// process.
long kill_thread_at_system_call(pid_t process, pid_t thread, int go, long nth);

/// Tells the tracer of `thread` of this process that the counted phase is over.
void mark_phase_over(pid_t thread);

/// Returns the number of the calling thread.
pid_t calling_thread(void);

/// Returns a socket that sends datagrams and never waits; negative errno.
int hostile_datagrams(void);

/// Returns a connection to the socket at `path` that never waits; negative errno.
int hostile_connect(const char *path);

/// Sends `text`, to `path` unless `path` is null, with `descriptor` (SCM_RIGHTS) unless `descriptor` is negative.
/// Returns 0 or a negative errno.
int hostile_send(int socket, const char *path, const char *text, int descriptor);

#endif
