// A thread-local slot and a barrier in all threads at once: together they move the cost of memory ordering from
// frequent readers to rare writers.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

// Initial-exec: with a call, every look-up would have to save registers. A model of ELF; other formats have none.
#ifdef __ELF__
#define PLIMSOLL_FAST_THREAD_LOCAL __attribute__((tls_model("initial-exec")))
#else
#define PLIMSOLL_FAST_THREAD_LOCAL
#endif
extern _Thread_local void *plimsoll_thread_reader_slot PLIMSOLL_FAST_THREAD_LOCAL;

/// Returns the slot of the calling thread, or NULL.
static inline void *plimsoll_reader_slot(void) { return plimsoll_thread_reader_slot; }

/// Gives the calling thread the slot `slot`. When the thread ends, `leave` is called with the slot. In a forked child
/// the thread has none: a fork handler clears the slot, which fork(3) calls, but not vfork(2) or a bare clone(2).
/// Returns 0 or the errno of the failed call.
int plimsoll_take_reader_slot(void *slot, void (*leave)(void *));

/// Keeps the compiler, not the processor, from moving reads and writes across the call.
static inline void plimsoll_compiler_barrier(void) { atomic_signal_fence(memory_order_seq_cst); }

/// MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED (Linux 4.14): once for a process. Returns 0 or the errno.
int plimsoll_prepare_barrier(void);

/// MEMBARRIER_CMD_PRIVATE_EXPEDITED: on return, every running thread of the process has passed a full barrier
/// (measured: 0.8 us with one thread, 2.7 with two that run). Returns 0 or the errno: EPERM in a forked child that has
/// not prepared the barrier, ENOMEM (kernels with CONFIG_CPUMASK_OFFSTACK), or any errno that a seccomp filter returns.
int plimsoll_barrier(void);

/// MEMBARRIER_CMD_GLOBAL (Linux 4.3; called SHARED before 4.16): the same for all processes. Needs neither memory nor
/// preparation and takes milliseconds. Returns 0 or the errno: EINVAL if some processors have no timer interrupt
/// (nohz_full).
int plimsoll_slow_barrier(void);

/// Sleeps for that many nanoseconds.
void plimsoll_nap(int64_t nanoseconds);
