#pragma once
#include <stdint.h>

// epoll(7), which Glibc's module leaves out.

/// Returns a descriptor, -1 with errno.
int e2e_epoll_make(void);

/// Adds `file` under `key`, to be notified of what can be read and of its ability to be written to where `writing`.
int e2e_epoll_add(int epoll, int file, uint32_t key, int writing);

/// Is notified of reading alone from now on.
int e2e_epoll_read_only(int epoll, int file, uint32_t key);

/// Waits up to `nanoseconds`; writes the keys of what is ready to `keys` and returns how many.
int e2e_epoll_wait(int epoll, int64_t nanoseconds, uint32_t *keys, int most);
