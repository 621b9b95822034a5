// Process functions that the standard library lacks: a thread with blocked signals, parking places, and a final message
// before exit.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Starts a detached thread with all signals blocked, so that the application's handlers never run there. `name` holds
/// at most 15 bytes. Returns 0 or the errno of pthread_create.
int plimsoll_thread_start(const char *name, void (*body)(void *), void *context);

/// Returns an opaque number that tells threads apart; never 0.
uintptr_t plimsoll_thread_id(void);

/// A parking place: one thread parks, any thread unparks that one. An unpark before the park is kept (once).
typedef struct plimsoll_parker plimsoll_parker;
plimsoll_parker *plimsoll_parker_make(void);
void plimsoll_parker_free(plimsoll_parker *parker);
/// Waits for an unpark. A negative time waits for ever. Returns true if unparked, false if the time ran out.
bool plimsoll_park(plimsoll_parker *parker, int64_t nanoseconds);
void plimsoll_unpark(plimsoll_parker *parker);

/// Returns the number of processors that this process may run on (sched_getaffinity); at least 1.
int plimsoll_processor_count(void);

/// Lets other threads go first (sched_yield).
void plimsoll_yield(void);

/// Returns the time of day in nanoseconds since 1970 (CLOCK_REALTIME).
int64_t plimsoll_wall_clock(void);

/// Writes `line` to standard error without allocating and ends the process at once. No exit handler runs, because any
/// of them may need memory or a lock that is unavailable. Standard error that takes nothing for 100 ms gets no more of
/// the line.
_Noreturn void plimsoll_exit(int status, const char *line, size_t length);

/// PR_SET_DUMPABLE: allows or forbids core dumps, and inspection by other processes of the same user. Returns 0 or the
/// errno.
int plimsoll_set_dumpable(bool dumpable);

/// PR_GET_DUMPABLE.
bool plimsoll_is_dumpable(void);

/// Returns true if inet_pton accepts the text as an address of that version of IP.
bool plimsoll_is_address(const char *text, bool is_version_6);

/// getpid.
int32_t plimsoll_process_id(void);

/// getenv: returns the value of an environment variable, or NULL.
const char *plimsoll_environment(const char *name);
