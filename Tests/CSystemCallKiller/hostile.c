#define _GNU_SOURCE
#include "CSystemCallKiller.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static socklen_t address_of(const char *path, struct sockaddr_un *address) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    strncpy(address->sun_path, path, sizeof address->sun_path - 1);
    return sizeof *address;
}

int hostile_datagrams(void) { return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

int hostile_connect(const char *path) {
    struct sockaddr_un address;
    socklen_t length = address_of(path, &address);
    int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (file >= 0 && connect(file, (struct sockaddr *)&address, length) == 0) return file;
    int error = errno;
    if (file >= 0) close(file);
    return -error;
}

int hostile_send(int socket, const char *path, const char *text, int descriptor) {
    struct sockaddr_un address;
    _Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec vector = {(void *)text, strlen(text)};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (path) message.msg_namelen = address_of(path, &address), message.msg_name = &address;
    if (descriptor >= 0) {
        message.msg_control = space, message.msg_controllen = sizeof space;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof descriptor);
        memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}
