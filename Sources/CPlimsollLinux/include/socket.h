// UNIX stream sockets; private ones are for one user alone. Results are 0 or more, or a negative errno. All are closed
// on exec.
#pragma once
#include <sys/types.h>

/// Returns the longest path that an address holds, without the terminating zero.
int plimsoll_longest_socket_path(void);

/// Returns a non-blocking socket that listens at `path`, where no file may exist (EADDRINUSE). The socket file has the
/// mode 0600 from the first instant. The kernel takes that mode from the socket's own, which is narrowed before there
/// is a file. The umask, which belongs to the whole process, stays unchanged.
int plimsoll_listen_private(const char *path, int backlog);

/// Accepts the next connection, non-blocking. Sets the process and user at the other end at the time of connecting
/// (SO_PEERCRED).
int plimsoll_accept_private(int listener, pid_t *process, uid_t *user);

/// Returns a non-blocking stream socket connected to the UNIX socket at `path`.
int plimsoll_connect(const char *path);

/// Returns a blocking connection to the socket at `path`; never waits for the listener to accept, which is EAGAIN. Sets
/// `process` to the listening process.
int plimsoll_connect_private(const char *path, pid_t *process);

/// Locks the directory `path` against other callers of this function, until the returned file is closed. Never waits:
/// EWOULDBLOCK.
int plimsoll_hold_directory(const char *path);
