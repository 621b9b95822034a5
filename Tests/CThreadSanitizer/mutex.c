// Tells the thread sanitizer how a contended `Synchronization.Mutex` orders its critical sections.
//
// On Linux such a mutex is a futex with priority inheritance. Without contention a client locks and unlocks the mutex
// by atomic operations, which the sanitizer sees. With contention the kernel locks and unlocks (FUTEX_LOCK_PI), within
// functions of the standard library, which is not instrumented. The functions here take the names of those functions,
// so calls of this program arrive here first.
#if defined(__linux__) && defined(__has_feature)
#if __has_feature(thread_sanitizer)

#define _GNU_SOURCE
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define SWIFT __attribute__((swiftcall))
#define SELF __attribute__((swift_context)) void *self
#define LOCK "$s15Synchronization12_MutexHandleV9_lockSlowyys6UInt32VF"
#define TRY_LOCK "$s15Synchronization12_MutexHandleV12_tryLockSlowSbyF"
#define UNLOCK "$s15Synchronization12_MutexHandleV11_unlockSlowyyF"

SWIFT void plimsoll_lock_slow(uint32_t thread, SELF) __asm__(LOCK);
SWIFT bool plimsoll_try_lock_slow(SELF) __asm__(TRY_LOCK);
SWIFT void plimsoll_unlock_slow(SELF) __asm__(UNLOCK);

static SWIFT void (*lock_slow)(uint32_t, SELF);
static SWIFT bool (*try_lock_slow)(SELF);
static SWIFT void (*unlock_slow)(SELF);

__attribute__((constructor)) static void find(void) {
    lock_slow = dlsym(RTLD_NEXT, LOCK);
    try_lock_slow = dlsym(RTLD_NEXT, TRY_LOCK);
    unlock_slow = dlsym(RTLD_NEXT, UNLOCK);
    if (!lock_slow || !try_lock_slow || !unlock_slow) abort();
}

SWIFT void plimsoll_lock_slow(uint32_t thread, SELF) {
    lock_slow(thread, self);
    __tsan_acquire(self);
}

SWIFT bool plimsoll_try_lock_slow(SELF) {
    if (!try_lock_slow(self)) return false;
    __tsan_acquire(self);
    return true;
}

SWIFT void plimsoll_unlock_slow(SELF) {
    __tsan_release(self);
    unlock_slow(self);
}

#endif
#endif
