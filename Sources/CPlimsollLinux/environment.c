#ifdef __linux__
#define _GNU_SOURCE
#include "environment.h"

#include <errno.h>
#include <linux/netlink.h>
#include <stddef.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

int plimsoll_watch_directory(int watch, const char *path, uint32_t mask) {
    int descriptor = inotify_add_watch(watch, path, mask);
    return descriptor < 0 ? -errno : descriptor;
}

void plimsoll_unwatch(int watch, int descriptor) { inotify_rm_watch(watch, descriptor); }

int plimsoll_clock_timer(void) {
    int timer = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    return timer < 0 ? -errno : timer;
}

int plimsoll_clock_timer_set(int timer, int64_t second) {
    struct itimerspec at = {.it_value = {.tv_sec = second > 0 ? second : 1}};
    return timerfd_settime(timer, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &at, NULL) < 0 ? -errno : 0;
}

static int64_t now(clockid_t clock) {
    struct timespec time = {0};
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

void plimsoll_clocks(int64_t *real, int64_t *boot) {
    int64_t best = INT64_MAX;
    // The thread may be preempted between two readings; the closest of a few has no such gap.
    for (int i = 0; i < 4; i++) {
        int64_t before = now(CLOCK_BOOTTIME), middle = now(CLOCK_REALTIME), after = now(CLOCK_BOOTTIME);
        if (after - before >= best) continue;
        best = after - before;
        *real = middle;
        *boot = before + best / 2;
    }
}

int plimsoll_seconds_from_utc(int64_t second) {
    tzset();
    time_t time = second;
    struct tm local;
    return localtime_r(&time, &local) ? (int)local.tm_gmtoff : 0;
}

int plimsoll_uevents(void) {
    int file = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
    if (file < 0) return -errno;
    // Group 1 is the kernel's; udev's own messages come in group 2.
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = 1};
    if (bind(file, (struct sockaddr *)&address, sizeof address) == 0) return file;
    int error = errno;
    close(file);
    return -error;
}

long plimsoll_uevent(int file, void *buffer, unsigned long size) {
    struct sockaddr_nl sender = {0};
    socklen_t length = sizeof sender;
    ssize_t count = recvfrom(file, buffer, size, MSG_DONTWAIT, (struct sockaddr *)&sender, &length);
    if (count < 0) return -errno;
    // Any process may send to the group; only the kernel has the number 0.
    return length == sizeof sender && sender.nl_pid == 0 ? count : 0;
}
#endif
