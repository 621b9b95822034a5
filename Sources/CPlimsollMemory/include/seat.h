// A word of its own for each thread, and a barrier in all threads at once: with both, who reads often leaves the price of order to
// who writes seldom.
#ifndef CPLIMSOLL_MEMORY_SEAT_H
#define CPLIMSOLL_MEMORY_SEAT_H

#include <stdatomic.h>
#include <stdint.h>

// Found without a call: with one, every look-up would have to save its registers for it.
extern _Thread_local void *plimsoll_thread_seat __attribute__((tls_model("initial-exec")));

/// What the calling thread has been given, or NULL.
static inline void *plimsoll_seat(void) { return plimsoll_thread_seat; }

/// Gives the calling thread `seat`. When the thread ends, `leave` is called with it. Returns 0 or the errno of what failed.
int plimsoll_take_seat(void *seat, void (*leave)(void *));

/// Keeps the compiler, not the processor, from moving reads and writes across it.
static inline void plimsoll_compiler_barrier(void) { atomic_signal_fence(memory_order_seq_cst); }

/// MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED (Linux 4.14): once for a process. Returns 0 or the errno.
int plimsoll_prepare_barrier(void);

/// MEMBARRIER_CMD_PRIVATE_EXPEDITED: when it returns, every running thread of the process has passed a full barrier (measured: 0.8 us with one
/// thread, 2.7 with two that run). Returns 0 or the errno; once prepared, it does not fail.
int plimsoll_barrier(void);

/// Sleeps for so long.
void plimsoll_nap(int64_t nanoseconds);

#endif
