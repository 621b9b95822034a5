// Who serves malloc in this process, what it holds back, and giving that back to the kernel.
#ifndef CPLIMSOLL_MEMORY_ALLOCATOR_H
#define CPLIMSOLL_MEMORY_ALLOCATOR_H

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
    /// It is loaded, but malloc is another's (a sanitizer's, Valgrind's).
    PLIMSOLL_NOT_OWNED,
    /// It serves the whole process.
    PLIMSOLL_OWNED,
    /// It serves the program while the C library goes on using its own: freeing what strdup returned crashes.
    PLIMSOLL_SPLIT,
};

struct plimsoll_allocator {
    enum plimsoll_allocator_kind kind;
    enum plimsoll_ownership ownership;
    /// Or NULL. Lives as long as the process, as `file` does.
    const char *version;
    /// The file that malloc is defined in, or NULL.
    const char *file;
    /// The environment told it to return freed pages at once (mimalloc).
    bool returns_at_once;
};

/// Found once, by the first call, by using it; some 10 us. In a forked child, it also brings back what fork stopped.
const struct plimsoll_allocator *plimsoll_allocator(void);

/// Gives free pages back. Not full: only what costs next to nothing (jemalloc: what is past its decay time; glibc: nothing).
/// Full: all there are (jemalloc: purge of all arenas; glibc: malloc_trim(0), under the locks of the arenas it walks).
/// Does nothing where no known allocator owns malloc. Allocates nothing.
void plimsoll_heap_give_back(bool full);

/// Has glibc map buffers of that many bytes and more on their own, and keep no more than that free at the top of an arena, from now on. By itself glibc raises both
/// limits to the largest buffer freed so far, up to 32 and 64 MiB (malloc/malloc.c, "dynamic mmap threshold"), and malloc_trim leaves the tops of all arenas but the
/// main one alone. False where glibc does not own malloc, or where the environment has set either limit.
bool plimsoll_heap_keep_less(size_t bytes);

/// Bytes, as jemalloc defines them: stats.allocated, .active, .resident, .retained.
struct plimsoll_heap_sample {
    size_t allocated, active, resident, retained;
};

/// jemalloc only, false elsewhere: 9 us with 9 arenas, 12 us more for each further one. Allocates nothing.
bool plimsoll_heap_sample(struct plimsoll_heap_sample *sample);

/// glibc only, false elsewhere: free bytes inside the heap and the number of holes they are in. Walks the free lists under their
/// locks (measured: 2 us at 500 holes, 22 ms at 200 000), so never on a hot path.
bool plimsoll_heap_holes(size_t *free_bytes, size_t *holes);

/// jemalloc only, ENOTSUP elsewhere: a background thread, and for the arenas there are and those to come this time until freed
/// pages are returned (dirty_decay_ms; muzzy_decay_ms becomes 0).
/// What the operator named in MALLOC_CONF stays as it is. Returns 0 or an errno.
int plimsoll_jemalloc_tune(long decay_ms);

/// jemalloc's settings in force: whether its background thread runs, and the decay time of arenas to come. False elsewhere.
bool plimsoll_jemalloc_settings(bool *background_thread, long *decay_ms);

#endif
