// Sockets that services are spoken to by, where Glibc's overlay lacks what they need: ancillary data, peers, epoll. Results are 0 or more, or a
// negative errno. All sockets are non-blocking and closed on exec.
#ifndef CPLIMSOLL_SUPERVISOR_CHANNEL_H
#define CPLIMSOLL_SUPERVISOR_CHANNEL_H

#include <stdint.h>
#include <sys/types.h>

/// More descriptors than this in one message are closed by the kernel before they are ours.
#define PLIMSOLL_MOST_DESCRIPTORS 16

struct plimsoll_datagram {
    pid_t pid;
    uid_t uid;
    /// 1 if the kernel said who sent it.
    int has_sender;
    /// 1 if it, or what came with it, was longer than there was room for.
    int is_cut;
    int descriptor_count;
    int descriptors[PLIMSOLL_MOST_DESCRIPTORS];
};

/// A listening stream socket at `path`, which everybody may connect to who can reach it. A socket that lies there is replaced; anything else is EEXIST.
int plimsoll_listen_local(const char *path, int backlog);

/// A datagram socket at `path`, as above, that tells who sent what (SO_PASSCRED).
int plimsoll_bind_datagrams(const char *path);

/// The next connection, and the process and user at its other end when it connected (SO_PEERCRED).
int plimsoll_accept_local(int listener, pid_t *pid, uid_t *uid);

/// The next datagram: its length, -EAGAIN for none. Its descriptors are closed on exec and belong to the caller, also when it is cut.
ssize_t plimsoll_receive_datagram(int file, void *buffer, size_t size, struct plimsoll_datagram *datagram);

int plimsoll_epoll(void);

/// Has `epoll` say `key` when `file` can be read, and with `writing` also when it can be written to. Adds it or changes what it waits for.
int plimsoll_epoll_set(int epoll, int file, uint64_t key, int reading, int writing);

/// The keys of what is ready now, at most `capacity`; how many.
int plimsoll_epoll_ready(int epoll, uint64_t *keys, int capacity);

#endif
