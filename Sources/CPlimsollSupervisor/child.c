#define _GNU_SOURCE
#include "child.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

int plimsoll_pidfd_open(pid_t pid) {
    long file = syscall(SYS_pidfd_open, pid, 0);
    return file < 0 ? -errno : (int)file;
}

int plimsoll_pidfd_signal(int pidfd, int signal) { return syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) < 0 ? -errno : 0; }
