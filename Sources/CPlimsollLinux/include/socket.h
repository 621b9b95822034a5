// UNIX stream sockets for one user alone. Results are 0 or more, or a negative errno. All are closed on exec.
#ifndef CPLIMSOLL_SOCKET_H
#define CPLIMSOLL_SOCKET_H
#include <sys/types.h>

/// The longest path that an address holds, without the zero behind it.
int plimsoll_longest_socket_path(void);

/// A non-blocking socket that listens at `path`, where nothing may lie (EADDRINUSE). Its file has the mode 0600 from its first instant: the kernel takes it from
/// the socket's own, which is narrowed before there is a file. The umask, which is the whole process's, is left alone.
int plimsoll_listen_private(const char *path, int backlog);

/// The next connection, non-blocking, and the process and user at its other end when it connected (SO_PEERCRED).
int plimsoll_accept_private(int listener, pid_t *process, uid_t *user);

/// A blocking connection to the socket at `path`; never waits for its listener to accept it, which is EAGAIN. `process` becomes the one that listens.
int plimsoll_connect_private(const char *path, pid_t *process);

/// Holds the directory `path` against others who ask the same, until the file returned is closed. Never waits: EWOULDBLOCK.
int plimsoll_hold_directory(const char *path);
#endif
