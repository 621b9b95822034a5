// System calls about the environment of a process. Results are those of the system calls: a negative number is an
// errno, negated.
#pragma once
#include <stdint.h>

/// Adds the directory at `path` to `watch`, made by `plimsoll_watch`; returns the watch descriptor.
int plimsoll_watch_directory(int watch, const char *path, uint32_t mask);

/// Removes that watch descriptor from `watch`.
void plimsoll_unwatch(int watch, int descriptor);

/// Makes a timer of `CLOCK_REALTIME`: non-blocking, closed on exec.
int plimsoll_clock_timer(void);

/// Sets the timer to that second since 1970. The timer is cancelled when the clock is set.
int plimsoll_clock_timer_set(int timer, int64_t second);

/// Reads `CLOCK_REALTIME` and `CLOCK_BOOTTIME`, in nanoseconds, as close to each other as possible.
void plimsoll_clocks(int64_t *real, int64_t *boot);

/// Returns the seconds by which the process's time zone is east of UTC at that second since 1970. Reads `TZ` and
/// /etc/localtime anew if they have changed.
int plimsoll_seconds_from_utc(int64_t second);

/// Returns a netlink socket that receives the kernel's uevents: non-blocking, closed on exec.
int plimsoll_uevents(void);

/// Reads the next uevent; returns 0 for a message that is not the kernel's.
long plimsoll_uevent(int file, void *buffer, unsigned long size);
