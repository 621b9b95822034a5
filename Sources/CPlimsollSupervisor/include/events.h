// epoll(7) and eventfd(2), which Glibc's overlay lacks. Results are 0 or more, or a negative errno.
#ifndef CPLIMSOLL_SUPERVISOR_EVENTS_H
#define CPLIMSOLL_SUPERVISOR_EVENTS_H

#include <stdint.h>

enum plimsoll_readiness { plimsoll_readable = 1, plimsoll_urgent = 2, plimsoll_writable = 4 };

/// A new list of files to wait for, closed on exec.
int plimsoll_queue(void);

/// Adds `file`, of which `plimsoll_queue_wait` then tells by `token`.
int plimsoll_queue_watch(int queue, int file, unsigned readiness, uint64_t token);

int plimsoll_queue_unwatch(int queue, int file);

/// Waits until some file is ready or `milliseconds` have passed (-1: for ever); their tokens, and how many. A signal ends it early with zero.
int plimsoll_queue_wait(int queue, uint64_t *tokens, int capacity, int milliseconds);

/// An eventfd at zero: non-blocking, closed on exec.
int plimsoll_bell(void);

#endif
