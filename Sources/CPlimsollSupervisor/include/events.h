// epoll(7), which Glibc's overlay lacks. Results are 0 or more, or a negative errno.
#pragma once

#include <stdint.h>

enum plimsoll_readiness { plimsoll_readable = 1, plimsoll_urgent = 2, plimsoll_writable = 4 };

/// Creates an epoll set, closed on exec.
int plimsoll_queue(void);

/// Adds `file`, or changes the readiness and token of a file added before; `plimsoll_queue_wait` reports the file by
/// `token`.
int plimsoll_queue_watch(int queue, int file, unsigned readiness, uint64_t token);

int plimsoll_queue_unwatch(int queue, int file);

/// Waits until a file is ready or `milliseconds` have passed (-1: for ever). Stores the tokens of the ready files and
/// returns their number. A signal ends the wait early with zero.
int plimsoll_queue_wait(int queue, uint64_t *tokens, int capacity, int milliseconds);
