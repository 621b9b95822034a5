#ifdef __linux__
#define _GNU_SOURCE
#include "notify.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int plimsoll_notify(const char *path, const void *bytes, size_t count, const int *descriptors, int descriptor_count) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof address.sun_path) return -ENAMETOOLONG;
    if (descriptor_count < 0 || descriptor_count > 253) return -EINVAL;
    memcpy(address.sun_path, path, length);
    // An abstract address begins with a null byte, written as "@" in the path. The length belongs to the address.
    if (path[0] == '@') address.sun_path[0] = 0;
    int file = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (file < 0) return -errno;
    union {
        char bytes[CMSG_SPACE(sizeof(int) * 253)];
        struct cmsghdr header;
    } control;
    struct iovec part = {.iov_base = (void *)bytes, .iov_len = count};
    struct msghdr message = {
        .msg_name = &address, .msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length), .msg_iov = &part, .msg_iovlen = 1};
    if (descriptor_count > 0) {
        memset(&control, 0, sizeof control);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int) * (size_t)descriptor_count);
        memcpy(CMSG_DATA(&control.header), descriptors, sizeof(int) * (size_t)descriptor_count);
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)descriptor_count);
    }
    int error = sendmsg(file, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
    close(file);
    return error;
}

int plimsoll_memory_file(const char *name) {
    int file = memfd_create(name, MFD_CLOEXEC);
    return file < 0 ? -errno : file;
}
#endif
