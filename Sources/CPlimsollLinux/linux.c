#ifdef __linux__
#define _GNU_SOURCE
#include "CPlimsollLinux.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

int plimsoll_eventfd(void) {
    int file = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return file < 0 ? -errno : file;
}

int plimsoll_poll(void *files, unsigned count, int64_t nanoseconds) {
    if (nanoseconds < 0) nanoseconds = 0;
    struct timespec limit = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
    int ready = ppoll(files, count, &limit, NULL);
    if (ready >= 0) return ready;
    return errno == EINTR ? 0 : -errno;
}

int64_t plimsoll_file_system(const char *path) {
    struct statfs status;
    return statfs(path, &status) < 0 ? -errno : (int64_t)status.f_type;
}

int plimsoll_watch(void) {
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    return watch < 0 ? -errno : watch;
}

int plimsoll_watch_writes(int watch, const char *path) {
    return inotify_add_watch(watch, path, IN_MODIFY) < 0 ? -errno : 0;
}
#endif
