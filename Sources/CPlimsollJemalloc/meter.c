#define _GNU_SOURCE
#include "CPlimsollJemalloc.h"

#include "CPlimsollMemory.h"

#ifndef __has_feature
#define __has_feature(name) 0
#endif

#if defined(PLIMSOLL_LINUX) && !__has_feature(thread_sanitizer) && !__has_feature(address_sanitizer)

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#if __has_attribute(swiftcall)
#define SWIFT_CALL __attribute__((swiftcall))
#else
#define SWIFT_CALL
#endif

// Weak: the program may be linked without jemalloc, or with another runtime; both are then refused with a reason.
extern int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));
/// The runtime's `swift::swift_task_localValueGet` (stdlib/public/Concurrency/TaskLocal.cpp): a pointer to the innermost
/// value of that key in the current task, or in the thread if no task runs; NULL for none. Takes no lock and allocates
/// nothing.
extern SWIFT_CALL const void *swift_task_localValueGet(const void *key) __attribute__((weak));

/// jemalloc's `activity_callback_thunk_t` (include/jemalloc/internal/activity_callback.h, since 5.3). Called on the
/// thread about every 64 KiB that the thread allocates or frees, with the thread's totals so far.
struct thunk {
    void (*callback)(void *context, uint64_t allocated, uint64_t freed);
    void *context;
};

/// The task-local; NULL while nothing is counted.
static const void *_Atomic task_key;

/// Initial-exec: any other model may allocate at the first use in a thread, inside malloc.
static _Thread_local struct {
    /// jemalloc's totals of this thread; NULL if the thread does not count.
    const uint64_t *allocated, *freed;
    /// The totals that were charged.
    uint64_t charged_allocated, charged_freed;
    bool is_tried;
    enum plimsoll_meter_state state;
} own PLIMSOLL_FAST_THREAD_LOCAL;

/// Charges the difference since the last call. Callable inside malloc.
static void charge(plimsoll_budget *budget, uint64_t allocated, uint64_t freed) {
    int64_t grown = (int64_t)(allocated - own.charged_allocated) - (int64_t)(freed - own.charged_freed);
    own.charged_allocated = allocated;
    own.charged_freed = freed;
    if (grown) plimsoll_budget_add(budget, grown);
}

static void allocated_much(void *context, uint64_t allocated, uint64_t freed) {
    (void)context;
    // Without a key, before the start, the bytes are no request's, then or later.
    const void *key = atomic_load_explicit(&task_key, memory_order_relaxed);
    plimsoll_budget *const *place = key ? swift_task_localValueGet(key) : NULL;
    charge(place ? *place : NULL, allocated, freed);
}

/// Returns the address of one of jemalloc's counters of this thread; NULL if there is none.
static const uint64_t *counter(const char *name) {
    const uint64_t *address = NULL;
    size_t size = sizeof address;
    return mallctl(name, &address, &size, NULL, 0) == 0 ? address : NULL;
}

/// Makes the calling thread count.
static void attach(void) {
    static const char callback[] = "experimental.thread.activity_callback";
    if (own.is_tried) return;
    own.is_tried = true;
    own.state = PLIMSOLL_METER_HAS_NO_CALLBACK;
    if (!mallctl) return;
    struct thunk thunk = {0};
    size_t size = sizeof thunk;
    if (mallctl(callback, &thunk, &size, NULL, 0) != 0) return;
    own.state = PLIMSOLL_METER_IS_TAKEN;
    if (thunk.callback && thunk.callback != allocated_much) return;
    own.state = PLIMSOLL_METER_HAS_NO_CALLBACK;
    const uint64_t *allocated = counter("thread.allocatedp"), *freed = counter("thread.deallocatedp");
    if (!allocated || !freed) return;
    own.charged_allocated = *allocated;
    own.charged_freed = *freed;
    thunk = (struct thunk){allocated_much, NULL};
    if (mallctl(callback, NULL, NULL, &thunk, sizeof thunk) != 0) return;
    own.allocated = allocated;
    own.freed = freed;
    own.state = PLIMSOLL_METER_RUNS;
}

static void settle(plimsoll_budget *budget) {
    if (!own.is_tried) attach();
    if (own.allocated) charge(budget, *own.allocated, *own.freed);
}

// --- Each new thread

struct start {
    void *(*body)(void *);
    void *context;
};

static void *run(void *start_) {
    struct start start = *(struct start *)start_;
    free(start_);
    attach();
    return start.body(start.context);
}

/// Replaces the C library's function in the whole program, because a thread that never entered a budget can still
/// allocate for one: any thread of the pool may run the rest of a request.
__attribute__((visibility("default"))) int pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *context) {
    typedef int creator(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    static _Atomic(creator *) next;
    creator *create = atomic_load_explicit(&next, memory_order_relaxed);
    if (!create) {
        // Any thread finds the same function.
        create = (creator *)dlsym(RTLD_NEXT, "pthread_create");
        if (!create) return EAGAIN;
        atomic_store_explicit(&next, create, memory_order_relaxed);
    }
    struct start *start = malloc(sizeof *start);
    if (!start) return EAGAIN;
    *start = (struct start){body, context};
    int failure = create(thread, attributes, run, start);
    if (failure) free(start);
    return failure;
}

enum plimsoll_meter_state plimsoll_meter_start(const void *key) {
    if (!swift_task_localValueGet) return PLIMSOLL_METER_HAS_NO_TASKS;
    attach();
    if (own.state != PLIMSOLL_METER_RUNS) return own.state;
    atomic_store_explicit(&task_key, key, memory_order_relaxed);
    plimsoll_budget_set_meter(settle);
    return PLIMSOLL_METER_RUNS;
}

void plimsoll_meter_stop(void) {
    plimsoll_budget_set_meter(NULL);
    atomic_store_explicit(&task_key, NULL, memory_order_relaxed);
}

enum plimsoll_meter_state plimsoll_meter_state(void) { return own.is_tried ? own.state : PLIMSOLL_METER_MISSES_THREADS; }

#else

enum plimsoll_meter_state plimsoll_meter_start(const void *key) { return (void)key, PLIMSOLL_METER_MISSES_THREADS; }
void plimsoll_meter_stop(void) {}
enum plimsoll_meter_state plimsoll_meter_state(void) { return PLIMSOLL_METER_MISSES_THREADS; }

#endif
