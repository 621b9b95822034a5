// A deterministic scheduler of real threads: one runs at a time, a seed chooses the next, and time passes only when the
// scheduler says so.
//
// The program is linked with `--wrap` for the thread functions of CPlimsollProcess, so that all threads and waits of
// the library come here. The library itself is unchanged. Waits for a lock of `Synchronization.Mutex` come here by
// `syscall`, and jobs of the cooperative pool by `swift_task_enqueueGlobal_hook`.
#ifndef CSIMULATEDTHREADS_H
#define CSIMULATEDTHREADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// True if the program was linked so that the library's threads are simulated.
bool simulated_is_linked(void);

/// Makes the calling thread the first simulated one, of group 0. All random choices follow from `seed`.
/// `enqueue` receives jobs of the cooperative pool.
void simulated_begin(uint64_t seed, void (*enqueue)(void *job));

/// Nanoseconds of simulated time.
int64_t simulated_now(void);
/// Returns a random number, for choices of the simulated world.
uint64_t simulated_random(void);
/// Lets other threads run for that time. Zero: they may run, or not.
void simulated_sleep(int64_t nanoseconds);

/// Group of the calling thread. Threads belong to the group of the thread that starts them.
int simulated_group(void);
/// Moves the calling thread to a group.
void simulated_join_group(int group);
/// Suspends all threads of a group wherever they are, as the freezer of control groups does.
void simulated_freeze(int group);
void simulated_thaw(int group);
/// Ends all threads of a group wherever they are, as SIGKILL does. Memory of the threads is lost.
void simulated_kill(int group);

/// A wait of a thread that would find nothing new after each period.
struct simulated_doze {
    /// Nanoseconds of a usual wait, and the most that one may last: a multiple.
    int64_t period, longest;
    /// Called before another thread of the group runs, with the time until the wait ends.
    void (*roused)(void *context, int64_t nanoseconds);
    void *context;
};

/// Lets the next wait of the calling thread last longer, as long as no other thread of the group runs. Then the wait
/// ends where a usual one would have ended, so that only turns without news are left out. One thread of a group may
/// doze. `doze` must live as long as the thread.
void simulated_doze(const struct simulated_doze *doze);
/// Ends the doze of a group whose thread would find something new.
void simulated_rouse(int group);

/// Number of switches to another thread, and a checksum of all choices: equal for equal runs.
uint64_t simulated_switches(void);
uint64_t simulated_checksum(void);
/// Prints each living thread, with the reason for the thread's wait, to the standard error.
void simulated_print_threads(void);

#endif
