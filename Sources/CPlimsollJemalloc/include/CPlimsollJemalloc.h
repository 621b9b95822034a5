// jemalloc for the whole process. A program linked with this module sets jemalloc up before main (start.c), and each
// thread can count what the thread allocates (meter.c).
#pragma once

#include <stdbool.h>

enum plimsoll_meter_state {
    /// This thread counts.
    PLIMSOLL_METER_RUNS,
    /// jemalloc has no such callback: older than 5.3, or built without.
    PLIMSOLL_METER_HAS_NO_CALLBACK,
    /// Another part of the program uses the callback of this thread.
    PLIMSOLL_METER_IS_TAKEN,
    /// The Swift runtime does not tell the current task's values.
    PLIMSOLL_METER_HAS_NO_TASKS,
    /// The program's threads start without this module's notice (a sanitizer, or a linker that hides pthread_create).
    PLIMSOLL_METER_MISSES_THREADS,
};

/// Starts to count for budgets. `key` is the task-local whose first word is the `plimsoll_budget` of the current task.
/// Call once jemalloc is known to own malloc. Idempotent.
enum plimsoll_meter_state plimsoll_meter_start(const void *key);

/// Stops to count, as if never started.
void plimsoll_meter_stop(void);

/// The state of the calling thread. A thread started before `plimsoll_meter_start` counts as well.
enum plimsoll_meter_state plimsoll_meter_state(void);
