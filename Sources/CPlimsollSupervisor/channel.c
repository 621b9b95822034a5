#define _GNU_SOURCE
#include "channel.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int address_of(const char *path, struct sockaddr_un *address) {
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof address->sun_path) return -ENAMETOOLONG;
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, length + 1);
    return 0;
}

static int bound(const char *path, int type) {
    struct sockaddr_un address;
    int error = address_of(path, &address);
    if (error < 0) return error;
    struct stat status;
    // Left by a supervisor that was killed: nobody can be reached by it any more.
    if (lstat(path, &status) == 0 && S_ISSOCK(status.st_mode)) unlink(path);
    int file = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (file < 0) return -errno;
    if (bind(file, (struct sockaddr *)&address, sizeof address) < 0) {
        error = errno == EADDRINUSE ? EEXIST : errno;
        close(file);
        return -error;
    }
    // Units may run as other users. Who it is that speaks, the kernel says, and not the mode.
    if (chmod(path, 0666) < 0) {
        error = errno;
        close(file);
        unlink(path);
        return -error;
    }
    return file;
}

int plimsoll_listen_local(const char *path, int backlog) {
    int file = bound(path, SOCK_STREAM);
    if (file < 0 || listen(file, backlog) == 0) return file;
    int error = errno;
    close(file);
    return -error;
}

int plimsoll_bind_datagrams(const char *path) {
    int file = bound(path, SOCK_DGRAM);
    int on = 1;
    if (file < 0 || setsockopt(file, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0) return file;
    int error = errno;
    close(file);
    return -error;
}

int plimsoll_accept_local(int listener, pid_t *pid, uid_t *uid) {
    int file;
    do file = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (file < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (file < 0) return -errno;
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0) {
        int error = errno;
        close(file);
        return -error;
    }
    *pid = peer.pid;
    *uid = peer.uid;
    return file;
}

ssize_t plimsoll_receive_datagram(int file, void *buffer, size_t size, struct plimsoll_datagram *datagram) {
    memset(datagram, 0, sizeof *datagram);
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int) * PLIMSOLL_MOST_DESCRIPTORS)];
        struct cmsghdr header;
    } control;
    struct iovec part = {.iov_base = buffer, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t count;
    do count = recvmsg(file, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (count < 0 && errno == EINTR);
    if (count < 0) return -errno;
    datagram->is_cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET) continue;
        if (part->cmsg_type == SCM_CREDENTIALS && part->cmsg_len >= CMSG_LEN(sizeof(struct ucred))) {
            struct ucred sender;
            memcpy(&sender, CMSG_DATA(part), sizeof sender);
            datagram->pid = sender.pid;
            datagram->uid = sender.uid;
            datagram->has_sender = 1;
        } else if (part->cmsg_type == SCM_RIGHTS) {
            size_t descriptors = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (size_t index = 0; index < descriptors; index++) {
                int descriptor;
                memcpy(&descriptor, CMSG_DATA(part) + index * sizeof(int), sizeof descriptor);
                if (datagram->descriptor_count < PLIMSOLL_MOST_DESCRIPTORS) datagram->descriptors[datagram->descriptor_count++] = descriptor;
                else close(descriptor);
            }
        }
    }
    return count;
}

int plimsoll_epoll(void) {
    int file = epoll_create1(EPOLL_CLOEXEC);
    return file < 0 ? -errno : file;
}

int plimsoll_epoll_set(int epoll, int file, uint64_t key, int reading, int writing) {
    struct epoll_event event = {.events = (reading ? EPOLLIN : 0u) | (writing ? EPOLLOUT : 0u), .data.u64 = key};
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, file, &event) == 0) return 0;
    if (errno != ENOENT) return -errno;
    return epoll_ctl(epoll, EPOLL_CTL_ADD, file, &event) == 0 ? 0 : -errno;
}

int plimsoll_epoll_ready(int epoll, uint64_t *keys, int capacity) {
    struct epoll_event events[64];
    int count;
    do count = epoll_wait(epoll, events, capacity < 64 ? capacity : 64, 0);
    while (count < 0 && errno == EINTR);
    if (count < 0) return -errno;
    for (int index = 0; index < count; index++) keys[index] = events[index].data.u64;
    return count;
}
