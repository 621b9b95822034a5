// Sockets that services are spoken to by, where Glibc's overlay lacks what they need: ancillary data, peers, epoll. Results are 0 or more, or a
// negative errno. All sockets are non-blocking and closed on exec.
#ifndef CPLIMSOLL_SUPERVISOR_CHANNEL_H
#define CPLIMSOLL_SUPERVISOR_CHANNEL_H

#include <stdint.h>
#include <sys/types.h>

/// How many descriptors the kernel passes with one message (SCM_MAX_FD).
#define PLIMSOLL_MOST_DESCRIPTORS 253

struct plimsoll_message {
    pid_t pid;
    uid_t uid;
    /// 1 if the kernel said which process sent the message.
    int has_sender;
    /// 1 if the message, or what came with it, was longer than there was room for.
    int is_cut;
    /// How many descriptors came with the message.
    int descriptor_count;
};

/// A listening stream socket at `path`, of `owner` ((uid_t)-1 for the caller's user) and with `mode`. A socket that a killed process left there is replaced.
/// -EADDRINUSE if a process still listens there, -EEXIST if what lies there is no socket.
int plimsoll_listen_local(const char *path, int backlog, uid_t owner, mode_t mode);

/// A datagram socket at `path`, as above, that tells who sent what (SO_PASSCRED).
int plimsoll_bind_datagrams(const char *path, uid_t owner, mode_t mode);

/// Gives the socket at `path` to `owner` ((uid_t)-1 leaves it) with `mode`. 0, or a negative errno.
int plimsoll_own_local(const char *path, uid_t owner, mode_t mode);

/// The next connection, and the process and user at its other end when it connected (SO_PEERCRED); process 0 if the kernel does not tell.
int plimsoll_accept_local(int listener, pid_t *pid, uid_t *uid);

/// The next message of a datagram or stream socket: its length, 0 for the end of a stream, -EAGAIN for none. `descriptors` has room for
/// PLIMSOLL_MOST_DESCRIPTORS. What it receives is closed on exec and belongs to the caller, also when the message is cut.
ssize_t plimsoll_receive(int file, void *buffer, size_t size, struct plimsoll_message *message, int *descriptors);

/// Closes a descriptor that another process has chosen or may have filled. May take as long as that process likes (a lingering socket, a file of a file
/// system whose server does not answer). Switches lingering off first. With `is_own_socket`, first reads from that socket what was not read, and closes
/// the descriptors in it likewise.
void plimsoll_close_foreign(int file, int is_own_socket);

/// The number of a socket; 0 for what is none. Waits for no file system.
uint64_t plimsoll_socket_number(int file);

/// The bytes of memory in a file of memory (memfd_create(2), tmpfs, hugetlbfs); 0 for any other file. Waits for no file system.
uint64_t plimsoll_memory_held(int file);

int plimsoll_epoll(void);

/// Has `epoll` say `key` when `file` can be read, and with `writing` also when it can be written to. Adds it or changes what it waits for.
int plimsoll_epoll_set(int epoll, int file, uint64_t key, int reading, int writing);

/// `epoll` does not wait for `file` any more. 0, or a negative errno.
int plimsoll_epoll_remove(int epoll, int file);

/// The keys of what is ready now, at most `capacity`; how many.
int plimsoll_epoll_ready(int epoll, uint64_t *keys, int capacity);

#endif
