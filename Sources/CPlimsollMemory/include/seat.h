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

/// Gives the calling thread `seat`. When the thread ends, `leave` is called with it. In a forked child the thread has none: the child has a
/// fork handler for that, which fork(3) calls, but not vfork(2) or a bare clone(2). Returns 0 or the errno of what failed.
int plimsoll_take_seat(void *seat, void (*leave)(void *));

/// Keeps the compiler, not the processor, from moving reads and writes across it.
static inline void plimsoll_compiler_barrier(void) { atomic_signal_fence(memory_order_seq_cst); }

/// MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED (Linux 4.14): once for a process. Returns 0 or the errno.
int plimsoll_prepare_barrier(void);

/// MEMBARRIER_CMD_PRIVATE_EXPEDITED: when it returns, every running thread of the process has passed a full barrier (measured: 0.8 us with one
/// thread, 2.7 with two that run). Returns 0 or the errno: EPERM in a forked child that has not prepared it, ENOMEM (kernels with CONFIG_CPUMASK_OFFSTACK),
/// whatever a seccomp filter says.
int plimsoll_barrier(void);

/// MEMBARRIER_CMD_GLOBAL (Linux 4.3; called SHARED before 4.16): the same for all processes, which needs neither memory nor preparation and
/// takes milliseconds. Returns 0 or the errno: EINVAL where some processors have no timer interrupt (nohz_full).
int plimsoll_slow_barrier(void);

/// Sleeps for so long.
void plimsoll_nap(int64_t nanoseconds);

#endif
