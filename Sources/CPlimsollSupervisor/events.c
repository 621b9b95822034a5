#include "events.h"

#include <errno.h>
#include <sys/epoll.h>

static int result(int value) { return value < 0 ? -errno : value; }

int plimsoll_queue(void) { return result(epoll_create1(EPOLL_CLOEXEC)); }

static int control(int queue, int operation, int file, struct epoll_event *event) {
    int value;
    do value = epoll_ctl(queue, operation, file, event);
    while (value < 0 && errno == EINTR);
    return result(value);
}

int plimsoll_queue_watch(int queue, int file, unsigned readiness, uint64_t token) {
    struct epoll_event event = {.data.u64 = token};
    if (readiness & plimsoll_readable) event.events |= EPOLLIN;
    if (readiness & plimsoll_urgent) event.events |= EPOLLPRI;
    if (readiness & plimsoll_writable) event.events |= EPOLLOUT;
    int value = control(queue, EPOLL_CTL_MOD, file, &event);
    return value == -ENOENT ? control(queue, EPOLL_CTL_ADD, file, &event) : value;
}

int plimsoll_queue_unwatch(int queue, int file) { return control(queue, EPOLL_CTL_DEL, file, 0); }

int plimsoll_queue_wait(int queue, uint64_t *tokens, int capacity, int milliseconds) {
    struct epoll_event events[64];
    int count = epoll_wait(queue, events, capacity < 64 ? capacity : 64, milliseconds);
    for (int i = 0; i < count; i++) tokens[i] = events[i].data.u64;
    return count < 0 && errno == EINTR ? 0 : result(count);
}
