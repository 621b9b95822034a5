#define _GNU_SOURCE
#include "CEpoll.h"
#include <errno.h>
#include <sys/epoll.h>
#include <time.h>

int e2e_epoll_make(void) { return epoll_create1(EPOLL_CLOEXEC); }

static int control(int epoll, int operation, int file, uint32_t key, uint32_t events) {
    struct epoll_event event = {.events = events, .data.u32 = key};
    return epoll_ctl(epoll, operation, file, &event);
}

int e2e_epoll_add(int epoll, int file, uint32_t key, int writing) {
    return control(epoll, EPOLL_CTL_ADD, file, key, EPOLLIN | (writing ? EPOLLOUT : 0));
}

int e2e_epoll_read_only(int epoll, int file, uint32_t key) { return control(epoll, EPOLL_CTL_MOD, file, key, EPOLLIN); }

int e2e_epoll_wait(int epoll, int64_t nanoseconds, uint32_t *keys, int most) {
    enum { MOST = 256 };
    struct epoll_event events[MOST];
    if (nanoseconds < 0) nanoseconds = 0;
    struct timespec time = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
    int count = epoll_pwait2(epoll, events, most < MOST ? most : MOST, &time, 0);
    // Kernels before 5.11: to the millisecond.
    if (count < 0 && errno == ENOSYS) count = epoll_wait(epoll, events, most < MOST ? most : MOST, (int)(nanoseconds / 1000000) + 1);
    for (int index = 0; index < count; index++) keys[index] = events[index].data.u32;
    return count < 0 ? 0 : count;
}
