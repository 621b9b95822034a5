// The kernel's calls about the surroundings of a process. Results are those of the system calls: a negative number is an errno, negated.
#ifndef CPLIMSOLL_ENVIRONMENT_H
#define CPLIMSOLL_ENVIRONMENT_H
#include <stdint.h>

/// Adds to what `watch`, made by `plimsoll_watch`, tells of the directory at `path`; its descriptor.
int plimsoll_watch_directory(int watch, const char *path, uint32_t mask);

/// Ends what `watch` tells by that descriptor.
void plimsoll_unwatch(int watch, int descriptor);

/// A timer of `CLOCK_REALTIME`: non-blocking, closed on exec.
int plimsoll_clock_timer(void);

/// Sets it to that second since 1970, and to be cancelled when the clock is set.
int plimsoll_clock_timer_set(int timer, int64_t second);

/// `CLOCK_REALTIME` and `CLOCK_BOOTTIME`, in nanoseconds, read as close to each other as can be.
void plimsoll_clocks(int64_t *real, int64_t *boot);

/// Seconds by which the process's time zone is east of UTC at that second since 1970. Reads `TZ` and /etc/localtime anew if they have changed.
int plimsoll_seconds_from_utc(int64_t second);

/// A netlink socket that receives the kernel's uevents: non-blocking, closed on exec.
int plimsoll_uevents(void);

/// The next uevent; 0 for a message that is not the kernel's.
long plimsoll_uevent(int file, void *buffer, unsigned long size);
#endif
