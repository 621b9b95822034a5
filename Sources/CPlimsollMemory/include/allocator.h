// The allocator behind malloc in this process, the memory kept there, and the release to the kernel.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum plimsoll_allocator_kind {
    PLIMSOLL_ALLOCATOR_UNKNOWN,
    PLIMSOLL_ALLOCATOR_GLIBC,
    PLIMSOLL_ALLOCATOR_JEMALLOC,
    PLIMSOLL_ALLOCATOR_MIMALLOC,
    PLIMSOLL_ALLOCATOR_TCMALLOC,
};

enum plimsoll_ownership {
    /// Loaded, but malloc is another allocator's (a sanitizer's, Valgrind's).
    PLIMSOLL_NOT_OWNED,
    /// Serves the whole process.
    PLIMSOLL_OWNED,
    /// Serves the program while the C library keeps another malloc: freeing what strdup returned crashes.
    PLIMSOLL_SPLIT,
};

struct plimsoll_allocator {
    enum plimsoll_allocator_kind kind;
    enum plimsoll_ownership ownership;
    /// The version, or NULL. Lives as long as the process, as `file` does.
    const char *version;
    /// The file that defines malloc, or NULL.
    const char *file;
    /// True if the environment makes the allocator return freed pages at once (mimalloc).
    bool returns_at_once;
};

/// Returns the allocator. The first call makes a test allocation; some 10 us. In a forked child, also restarts what
/// fork stopped.
const struct plimsoll_allocator *plimsoll_allocator(void);

/// Returns free pages to the kernel. Not full: only what costs next to nothing (jemalloc: pages past the decay time;
/// glibc: nothing). Full: all there are (jemalloc: purge of all arenas; glibc: malloc_trim(0), under the locks of the
/// arenas it walks). Does nothing if no known allocator owns malloc. Allocates nothing.
void plimsoll_heap_give_back(bool full);

/// Makes glibc map buffers of at least that many bytes on their own, and keep no more than that free at the top of an
/// arena, from now on. By default glibc raises both limits to the largest buffer freed so far, up to 32 and 64 MiB
/// (malloc/malloc.c, "dynamic mmap threshold"). And malloc_trim leaves the tops of all arenas but the main one alone.
/// False if glibc does not own malloc, or if the environment has set either limit.
bool plimsoll_heap_keep_less(size_t bytes);

/// Bytes, as jemalloc defines them: stats.allocated, .active, .resident, .retained.
struct plimsoll_heap_sample {
    size_t allocated, active, resident, retained;
};

/// Reads jemalloc's statistics; false elsewhere. 9 us with 9 arenas, 12 us more for each further one. Allocates
/// nothing.
bool plimsoll_heap_sample(struct plimsoll_heap_sample *sample);

/// Counts the free bytes inside glibc's heap and the holes they are in; false elsewhere. Walks the free lists under
/// their locks (measured: 2 us at 500 holes, 22 ms at 200 000), so never on a hot path.
bool plimsoll_heap_holes(size_t *free_bytes, size_t *holes);

/// Starts jemalloc's background thread and sets the time until freed pages are returned, for existing and future arenas
/// (dirty_decay_ms; muzzy_decay_ms becomes 0). ENOTSUP elsewhere. Options that the operator named in MALLOC_CONF stay
/// as they are. Returns 0 or an errno.
int plimsoll_jemalloc_tune(long decay_ms);

/// Reads jemalloc's settings in force: the state of the background thread, and the decay time of future arenas. False
/// elsewhere.
bool plimsoll_jemalloc_settings(bool *background_thread, long *decay_ms);
