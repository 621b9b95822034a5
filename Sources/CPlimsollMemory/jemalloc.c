#define _GNU_SOURCE
#include "kernel.h"

#include <errno.h>

#include "allocator.h"

#ifdef PLIMSOLL_LINUX

#include "jemalloc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));
extern int mallctlnametomib(const char *, size_t *, size_t *) __attribute__((weak));
extern int mallctlbymib(const size_t *, size_t, void *, size_t *, void *, size_t) __attribute__((weak));

static struct {
    int (*by_name)(const char *, void *, size_t *, void *, size_t);
    int (*resolve)(const char *, size_t *, size_t *);
    int (*by_number)(const size_t *, size_t, void *, size_t *, void *, size_t);
} call;

/// A control of jemalloc, resolved once: reading by number takes 18 ns, by name 50.
struct control {
    size_t parts[3], length;
};

static struct control decay, purge, flush, epoch, allocated, active, resident, retained, allocated_by_thread;

static bool resolve(const char *name, struct control *control) {
    control->length = sizeof control->parts / sizeof *control->parts;
    return call.resolve(name, control->parts, &control->length) == 0;
}

static int run(const struct control *control) { return call.by_number(control->parts, control->length, NULL, NULL, NULL, 0); }

static int read_by(const struct control *control, void *value, size_t size) {
    return call.by_number(control->parts, control->length, value, &size, NULL, 0);
}

bool plimsoll_jemalloc_is_linked(void) { return mallctl != NULL; }

bool plimsoll_jemalloc_load(void) {
    call.by_name = plimsoll_find(mallctl, "mallctl");
    call.resolve = plimsoll_find(mallctlnametomib, "mallctlnametomib");
    call.by_number = plimsoll_find(mallctlbymib, "mallctlbymib");
    // 4096 is MALLCTL_ARENAS_ALL, all arenas, since version 5.
    return call.by_name && call.resolve && call.by_number && resolve("arena.4096.decay", &decay) && resolve("arena.4096.purge", &purge)
        && resolve("thread.tcache.flush", &flush) && resolve("epoch", &epoch) && resolve("stats.allocated", &allocated)
        && resolve("stats.active", &active) && resolve("stats.resident", &resident) && resolve("stats.retained", &retained)
        && resolve("thread.allocated", &allocated_by_thread);
}

const char *plimsoll_jemalloc_version(void) {
    const char *version = NULL;
    size_t size = sizeof version;
    return call.by_name("version", &version, &size, NULL, 0) == 0 ? version : NULL;
}

/// Returns the bytes that jemalloc has given this thread so far.
static uint64_t taken(void) {
    uint64_t bytes = 0;
    read_by(&allocated_by_thread, &bytes, sizeof bytes);
    return bytes;
}

enum plimsoll_ownership plimsoll_jemalloc_ownership(void) {
    enum { size = 100 };
    uint64_t before = taken();
    // Volatile: compilers remove an unused pair of malloc and free.
    void *volatile block = malloc(size);
    uint64_t grown = taken() - before;
    free(block);
    if (grown < size) return PLIMSOLL_NOT_OWNED;

    // The same through the C library. By a pointer, or the compiler may replace strdup with an allocation made here.
    char text[size];
    memset(text, 'x', size - 1);
    text[size - 1] = 0;
    char *(*volatile duplicate)(const char *) = strdup;
    before = taken();
    char *copy = duplicate(text);
    // Not freed: a free would crash.
    if (taken() - before < size) return PLIMSOLL_SPLIT;
    free(copy);
    return PLIMSOLL_OWNED;
}

void plimsoll_jemalloc_give_back(bool full) {
    if (!full) {
        run(&decay);
        return;
    }
    // Memory that this thread freed last rests in the thread's cache; other threads' caches empty themselves.
    run(&flush);
    run(&purge);
}

bool plimsoll_jemalloc_sample(struct plimsoll_heap_sample *sample) {
    uint64_t next = 1;
    // Statistics do not change until the epoch is written.
    return call.by_number(epoch.parts, epoch.length, NULL, NULL, &next, sizeof next) == 0
        && read_by(&allocated, &sample->allocated, sizeof(size_t)) == 0 && read_by(&active, &sample->active, sizeof(size_t)) == 0
        && read_by(&resident, &sample->resident, sizeof(size_t)) == 0 && read_by(&retained, &sample->retained, sizeof(size_t)) == 0;
}

// --- Settings

/// Set in a forked child. Relaxed: the child has one thread when the flag is set, and any one of the reading threads
/// acts.
static atomic_bool lost_its_thread;

static void forked(void) { atomic_store_explicit(&lost_its_thread, true, memory_order_relaxed); }

/// Returns true if the operator set this option when the process was started. Compares whole names, as one option's
/// name may contain another's: settings are `name:value`, with commas between.
static bool is_decided(const char *option) {
    size_t length = strlen(option);
    const char *setting = getenv("MALLOC_CONF");
    while (setting) {
        if (strncmp(setting, option, length) == 0 && setting[length] == ':') return true;
        setting = strchr(setting, ',');
        if (setting) setting++;
    }
    return false;
}

static int start_thread(void) {
    bool on = true;
    return call.by_name("background_thread", NULL, NULL, &on, sizeof on);
}

void plimsoll_jemalloc_revive(void) {
    if (!atomic_load_explicit(&lost_its_thread, memory_order_relaxed)) return;
    if (atomic_exchange_explicit(&lost_its_thread, false, memory_order_relaxed)) start_thread();
}

/// Sets `option` for existing and future arenas.
static int set_decay(const char *option, ssize_t milliseconds) {
    if (is_decided(option)) return 0;
    char name[64];
    snprintf(name, sizeof name, "arenas.%s", option);
    int failure = call.by_name(name, NULL, NULL, &milliseconds, sizeof milliseconds);
    unsigned count = 0;
    size_t size = sizeof count;
    if (!failure) failure = call.by_name("arenas.narenas", &count, &size, NULL, 0);
    for (unsigned index = 0; index < count && !failure; index++) {
        snprintf(name, sizeof name, "arena.%u.%s", index, option);
        // EFAULT: the arena is counted but not made yet; the setting above applies then.
        int one = call.by_name(name, NULL, NULL, &milliseconds, sizeof milliseconds);
        if (one && one != EFAULT) failure = one;
    }
    return failure;
}

int plimsoll_jemalloc_tune(long decay_ms) {
    const struct plimsoll_allocator *allocator = plimsoll_allocator();
    if (allocator->kind != PLIMSOLL_ALLOCATOR_JEMALLOC || allocator->ownership != PLIMSOLL_OWNED) return ENOTSUP;
    int failure = set_decay("dirty_decay_ms", decay_ms);
    if (!failure) failure = set_decay("muzzy_decay_ms", 0);
    if (failure || is_decided("background_thread")) return failure;
    static atomic_bool watches_forks;
    if (!atomic_exchange_explicit(&watches_forks, true, memory_order_relaxed)) failure = pthread_atfork(NULL, NULL, forked);
    return failure ? failure : start_thread();
}

bool plimsoll_jemalloc_settings(bool *background_thread, long *decay_ms) {
    if (plimsoll_allocator()->kind != PLIMSOLL_ALLOCATOR_JEMALLOC) return false;
    size_t thread_size = sizeof *background_thread, decay_size = sizeof *decay_ms;
    return call.by_name("background_thread", background_thread, &thread_size, NULL, 0) == 0
        && call.by_name("arenas.dirty_decay_ms", decay_ms, &decay_size, NULL, 0) == 0;
}

#else

int plimsoll_jemalloc_tune(long decay_ms) { return (void)decay_ms, ENOTSUP; }
bool plimsoll_jemalloc_settings(bool *background_thread, long *decay_ms) { return (void)background_thread, (void)decay_ms, false; }

#endif
