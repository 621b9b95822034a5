#define _GNU_SOURCE
#include "reader_slot.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "kernel.h"

#ifdef PLIMSOLL_LINUX
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

_Thread_local void *plimsoll_thread_reader_slot;

// One for the process.
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int key_error;
// Relaxed: every thread stores the same function, and one that leaves has stored it itself.
static void (*_Atomic leave_slot)(void *);

static void leave(void *slot) {
    // Other destructors may still look something up, and then take another slot.
    plimsoll_thread_reader_slot = NULL;
    atomic_load_explicit(&leave_slot, memory_order_relaxed)(slot);
}

// The slots' memory is wiped in a forked child, where another thread may be given the same slot. So the one thread that
// continues there must give up the slot. Runs before fork(2) returns in the child; setting a small key to NULL takes no
// lock and allocates nothing.
static void forget_in_child(void) {
    plimsoll_thread_reader_slot = NULL;
    pthread_setspecific(key, NULL);
}

static void make_key(void) {
    key_error = pthread_key_create(&key, leave);
    if (!key_error) key_error = pthread_atfork(NULL, NULL, forget_in_child);
}

int plimsoll_take_reader_slot(void *slot, void (*leave)(void *)) {
    atomic_store_explicit(&leave_slot, leave, memory_order_relaxed);
    pthread_once(&once, make_key);
    int error = key_error ? key_error : pthread_setspecific(key, slot);
    if (!error) plimsoll_thread_reader_slot = slot;
    return error;
}

#ifdef PLIMSOLL_LINUX
static int barrier(int command) { return syscall(SYS_membarrier, command, 0, 0) ? errno : 0; }

int plimsoll_prepare_barrier(void) { return barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); }

int plimsoll_barrier(void) { return barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED); }

int plimsoll_slow_barrier(void) { return barrier(MEMBARRIER_CMD_SHARED); }
#else
// Without a barrier no thread gets a reader slot, and look-ups take locks.
int plimsoll_prepare_barrier(void) { return ENOTSUP; }

int plimsoll_barrier(void) { return ENOTSUP; }

int plimsoll_slow_barrier(void) { return ENOTSUP; }
#endif

void plimsoll_nap(int64_t nanoseconds) {
    struct timespec time = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
    nanosleep(&time, NULL);
}
