// System calls that Swift's Glibc overlay lacks. Results are those of the system calls: a negative number is an errno,
// negated.
#pragma once
#include "environment.h"
#include "notify.h"
#include "socket.h"
#include <stdint.h>

/// Makes an eventfd: non-blocking, closed on exec, zero at first.
int plimsoll_eventfd(void);

/// Waits until one of the files (an array of `struct pollfd`) is ready or `nanoseconds` have passed; returns 0 after a
/// signal, too.
int plimsoll_poll(void *files, unsigned count, int64_t nanoseconds);

/// Returns the magic number of the file system that `path` lies on.
int64_t plimsoll_file_system(const char *path);

/// Returns a non-blocking inotify file that becomes readable when a process writes to one of the paths given to
/// `plimsoll_watch_writes`.
int plimsoll_watch(void);

/// Adds `path` to a file made by `plimsoll_watch`.
int plimsoll_watch_writes(int watch, const char *path);
