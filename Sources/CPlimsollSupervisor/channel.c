#define _GNU_SOURCE
#include "channel.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/// The value of a system call, made again for as long as signals interrupt it.
#define RETRIED(call) \
    ({ \
        __typeof__(call) value_; \
        do value_ = (call); \
        while (value_ < 0 && errno == EINTR); \
        value_; \
    })

static int address_of(const char *path, struct sockaddr_un *address) {
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof address->sun_path) return -ENAMETOOLONG;
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, length + 1);
    return 0;
}

// Tells whether another process still receives at `address`: 1 if so, 0 for a socket that a process left behind, or a
// negative errno.
static int is_live(const struct sockaddr_un *address, int type) {
    int probe = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0) return -errno;
    int result = RETRIED(connect(probe, (const struct sockaddr *)address, sizeof *address));
    int error = result < 0 ? errno : 0;
    close(probe);
    // A full queue belongs to a live socket, and so does a socket of another type.
    if (error == 0 || error == EAGAIN || error == EPROTOTYPE) return 1;
    return error == ECONNREFUSED || error == ENOENT ? 0 : -error;
}

static int bound(const char *path, int type, uid_t owner, mode_t mode) {
    struct sockaddr_un address;
    int error = address_of(path, &address);
    if (error < 0) return error;
    struct stat status;
    if (lstat(path, &status) == 0 && S_ISSOCK(status.st_mode)) {
        int live = is_live(&address, type);
        if (live < 0) return live;
        if (live) return -EADDRINUSE;
        // The socket was left by a killed supervisor; no process receives from it any more.
        unlink(path);
    }
    int file = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (file < 0) return -errno;
    // The path gets this mode on creation, so no other user can reach the socket before the owner is set.
    (void)fchmod(file, S_IRUSR | S_IWUSR);
    int result = RETRIED(bind(file, (struct sockaddr *)&address, sizeof address));
    if (result < 0) {
        error = errno == EADDRINUSE ? EEXIST : errno;
        close(file);
        return -error;
    }
    error = plimsoll_own_local(path, owner, mode);
    if (error == 0) return file;
    close(file);
    unlink(path);
    return error;
}

int plimsoll_own_local(const char *path, uid_t owner, mode_t mode) {
    int result;
    if (owner != (uid_t)-1) {
        result = RETRIED(lchown(path, owner, (gid_t)-1));
        if (result < 0) return -errno;
    }
    result = RETRIED(chmod(path, mode));
    return result < 0 ? -errno : 0;
}

int plimsoll_listen_local(const char *path, int backlog, uid_t owner, mode_t mode) {
    int file = bound(path, SOCK_STREAM, owner, mode);
    if (file < 0) return file;
    int result = RETRIED(listen(file, backlog));
    if (result == 0) return file;
    int error = errno;
    close(file);
    unlink(path);
    return -error;
}

int plimsoll_bind_datagrams(const char *path, uid_t owner, mode_t mode) {
    int file = bound(path, SOCK_DGRAM, owner, mode);
    if (file < 0) return file;
    int on = 1, result = RETRIED(setsockopt(file, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    if (result == 0) return file;
    int error = errno;
    close(file);
    unlink(path);
    return -error;
}

int plimsoll_accept_local(int listener, pid_t *pid, uid_t *uid) {
    int file;
    do file = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (file < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (file < 0) return -errno;
    struct ucred peer = {0, (uid_t)-1, (gid_t)-1};
    socklen_t length = sizeof peer;
    // A connection without a known peer belongs to no unit. The caller closes it like other strangers' connections,
    // on another thread.
    int result = RETRIED(getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &length));
    *pid = peer.pid;
    *uid = peer.uid;
    return file;
}

ssize_t plimsoll_receive(int file, void *buffer, size_t size, struct plimsoll_message *message, int *descriptors) {
    memset(message, 0, sizeof *message);
    // The buffer fits all descriptors that the kernel passes in one message. The kernel would close excess
    // descriptors within this call, and such a close may take as long as the sender likes.
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int) * PLIMSOLL_MOST_DESCRIPTORS)];
        struct cmsghdr header;
    } control;
    struct iovec part = {.iov_base = buffer, .iov_len = size};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t count = RETRIED(recvmsg(file, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
    if (count < 0) return -errno;
    message->is_cut = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&header); part; part = CMSG_NXTHDR(&header, part)) {
        if (part->cmsg_level != SOL_SOCKET) continue;
        if (part->cmsg_type == SCM_CREDENTIALS && part->cmsg_len >= CMSG_LEN(sizeof(struct ucred))) {
            struct ucred sender;
            memcpy(&sender, CMSG_DATA(part), sizeof sender);
            message->pid = sender.pid;
            message->uid = sender.uid;
            message->has_sender = 1;
        } else if (part->cmsg_type == SCM_RIGHTS) {
            size_t given = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            size_t room = (size_t)(PLIMSOLL_MOST_DESCRIPTORS - message->descriptor_count);
            if (given > room) given = room;  // Cannot be: the control buffer has no more.
            memcpy(descriptors + message->descriptor_count, CMSG_DATA(part), given * sizeof(int));
            message->descriptor_count += (int)given;
        }
    }
    return count;
}

void plimsoll_close_foreign(int file, int is_own_socket) {
    if (is_own_socket) {
        // Closing this socket would also close the descriptors in unread messages, with lingering as set by the
        // senders.
        char text[512];
        int descriptors[PLIMSOLL_MOST_DESCRIPTORS];
        struct plimsoll_message message;
        for (int messages = 0; messages < 4096; messages++) {
            ssize_t count = plimsoll_receive(file, text, sizeof text, &message, descriptors);
            for (int index = 0; count >= 0 && index < message.descriptor_count; index++) plimsoll_close_foreign(descriptors[index], 0);
            if (count < 0 || (count == 0 && message.descriptor_count == 0 && !message.has_sender)) break;
        }
    }
    struct linger linger;
    socklen_t length = sizeof linger;
    if (getsockopt(file, SOL_SOCKET, SO_LINGER, &linger, &length) == 0 && linger.l_onoff && linger.l_linger > 0) {
        linger.l_onoff = 0;
        (void)setsockopt(file, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    }
    close(file);
}

uint64_t plimsoll_socket_number(int file) {
    int type;
    socklen_t length = sizeof type;
    struct stat status;
    // Check the type first: fstat(2) of a file may wait for a file system.
    if (getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &length) < 0) return 0;
    return fstat(file, &status) == 0 ? status.st_ino : 0;
}

uint64_t plimsoll_memory_held(int file) {
    // Only files of shmem and hugetlbfs have seals (mm/memfd.c), and fstat(2) of these never waits.
    if (fcntl(file, F_GET_SEALS) < 0) return 0;
    struct stat status;
    return fstat(file, &status) == 0 ? (uint64_t)status.st_blocks * 512 : 0;
}
