#ifdef __linux__
#define _GNU_SOURCE
#include "socket.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

int plimsoll_longest_socket_path(void) { return (int)sizeof(((struct sockaddr_un *)0)->sun_path) - 1; }

static int address_of(const char *path, struct sockaddr_un *address) {
    size_t length = strlen(path);
    if (length >= sizeof address->sun_path) return -ENAMETOOLONG;
    if (length == 0) return -ENOENT;
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, length + 1);
    return 0;
}

static int failed(int file) {
    int error = errno;
    close(file);
    return -error;
}

int plimsoll_listen_private(const char *path, int backlog) {
    struct sockaddr_un address;
    int error = address_of(path, &address);
    if (error < 0) return error;
    int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (file < 0) return -errno;
    // unix_bind (net/unix/af_unix.c) makes the file with the socket's mode, less the umask.
    if (fchmod(file, 0600) < 0) return failed(file);
    if (bind(file, (struct sockaddr *)&address, sizeof address) < 0) return failed(file);
    struct stat status;
    // Some kernels, such as emulations, may create the file with another mode. No socket is better than one that others
    // can open.
    int is_private = lstat(path, &status) == 0 && (status.st_mode & 0177) == 0;
    if (!is_private || listen(file, backlog) < 0) {
        if (!is_private) errno = EPERM;
        error = failed(file);
        unlink(path);
        return error;
    }
    return file;
}

static int peer_of(int file, pid_t *process, uid_t *user) {
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0) return failed(file);
    *process = peer.pid;
    *user = peer.uid;
    return file;
}

int plimsoll_accept_private(int listener, pid_t *process, uid_t *user) {
    int file;
    do file = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (file < 0 && (errno == EINTR || errno == ECONNABORTED));
    return file < 0 ? -errno : peer_of(file, process, user);
}

int plimsoll_connect(const char *path) {
    struct sockaddr_un address;
    int error = address_of(path, &address);
    if (error < 0) return error;
    int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (file < 0) return -errno;
    return connect(file, (struct sockaddr *)&address, sizeof address) < 0 ? failed(file) : file;
}

int plimsoll_connect_private(const char *path, pid_t *process) {
    int file = plimsoll_connect(path);
    if (file < 0) return file;
    uid_t user;
    file = peer_of(file, process, &user);
    if (file >= 0 && fcntl(file, F_SETFL, 0) < 0) return failed(file);
    return file;
}

int plimsoll_hold_directory(const char *path) {
    int file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0) return -errno;
    while (flock(file, LOCK_EX | LOCK_NB) < 0)
        if (errno != EINTR) return failed(file);
    return file;
}
#endif
