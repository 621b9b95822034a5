// Sockets for talking to services, where Glibc's overlay lacks calls: ancillary data, peer credentials.
// Results are 0 or more, or a negative errno. All sockets are non-blocking and closed on exec.
#pragma once

#include <stdint.h>
#include <sys/types.h>

/// Greatest number of descriptors that the kernel passes with one message (SCM_MAX_FD).
#define PLIMSOLL_MOST_DESCRIPTORS 253

struct plimsoll_message {
    pid_t pid;
    uid_t uid;
    /// 1 if the kernel reported the sending process.
    int has_sender;
    /// 1 if the message or its ancillary data was truncated.
    int is_cut;
    /// Number of descriptors in the message.
    int descriptor_count;
};

/// Creates a listening stream socket at `path` with `owner` ((uid_t)-1 for the caller's user) and `mode`. Replaces a
/// socket that a killed process left there. -EADDRINUSE if a process still listens there, -EEXIST if the path is not
/// a socket.
int plimsoll_listen_local(const char *path, int backlog, uid_t owner, mode_t mode);

/// Creates a datagram socket at `path`, as above, that reports the sender of each message (SO_PASSCRED).
int plimsoll_bind_datagrams(const char *path, uid_t owner, mode_t mode);

/// Gives the socket at `path` to `owner` ((uid_t)-1 for no change) and sets `mode`. Returns 0 or a negative errno.
int plimsoll_own_local(const char *path, uid_t owner, mode_t mode);

/// Accepts the next connection. Sets the process and user at the other end at the time of connecting (SO_PEERCRED);
/// process 0 if the kernel does not report them.
int plimsoll_accept_local(int listener, pid_t *pid, uid_t *uid);

/// Receives the next message of a datagram or stream socket. Returns the length, 0 for the end of a stream, or
/// -EAGAIN for no message. `descriptors` has room for PLIMSOLL_MOST_DESCRIPTORS. Received descriptors are closed on
/// exec and belong to the caller, also if the message is truncated.
ssize_t plimsoll_receive(int file, void *buffer, size_t size, struct plimsoll_message *message, int *descriptors);

/// Closes a descriptor that another process has chosen or may have filled. May take as long as that process likes (a
/// lingering socket, or a file of a file system whose server does not answer). Turns lingering off first. With
/// `is_own_socket`, first reads the unread messages of the socket and closes their descriptors in the same way.
void plimsoll_close_foreign(int file, int is_own_socket);

/// Returns the inode number of a socket; 0 for any other file. Never waits for a file system.
uint64_t plimsoll_socket_number(int file);

/// Returns the bytes of memory in a memory file (memfd_create(2), tmpfs, hugetlbfs); 0 for any other file. Never
/// waits for a file system.
uint64_t plimsoll_memory_held(int file);
