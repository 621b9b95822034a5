#define _GNU_SOURCE
#include "allocator.h"

#include "kernel.h"

#ifdef PLIMSOLL_LINUX

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#include <malloc.h>
#endif

#include "jemalloc.h"

// Weak: null if no library that defines them is linked or preloaded. A program that links an archive does not export
// the symbols, so only a weak reference finds them. Only dlsym finds a library opened later.
extern void mi_collect(bool) __attribute__((weak));
extern void MallocExtension_ReleaseFreeMemory(void) __attribute__((weak));

// Weak, too. A strong reference would bring glibc's malloc into a static executable with another allocator, and the
// link would fail.
#ifdef __GLIBC__
extern int malloc_trim(size_t) __attribute__((weak));
extern int mallopt(int, int) __attribute__((weak));
#if __GLIBC__ > 2 || __GLIBC_MINOR__ >= 33
#define HAS_MALLINFO2 1
extern struct mallinfo2 mallinfo2(void) __attribute__((weak));
#endif
#endif

/// Returns the object that contains an address.
static void *object_of(void *address, const char **file) {
    Dl_info info;
    if (!address || !dladdr(address, &info)) return NULL;
    if (file) *file = info.dli_fname;
    return info.dli_fbase;
}

/// Returns true if the function is loaded and the same object defines malloc.
static bool has_malloc(void *function, void *object_of_malloc) { return function && object_of(function, NULL) == object_of_malloc; }

static bool is_zero(const char *variable) {
    const char *value = getenv(variable);
    return value && strcmp(value, "0") == 0;
}

static struct plimsoll_allocator found;

static void find(void) {
    void *mimalloc = plimsoll_find(mi_collect, "mi_collect");
    void *tcmalloc = plimsoll_find(MallocExtension_ReleaseFreeMemory, "MallocExtension_ReleaseFreeMemory");
    // A static executable has no dynamic symbols, and only one malloc.
    void *object = object_of(dlsym(RTLD_DEFAULT, "malloc"), &found.file);

    if (plimsoll_jemalloc_load()) {
        found.kind = PLIMSOLL_ALLOCATOR_JEMALLOC;
        found.version = plimsoll_jemalloc_version();
        found.ownership = plimsoll_jemalloc_ownership();
        if (found.ownership != PLIMSOLL_NOT_OWNED) return;
    }
    if (has_malloc(mimalloc, object)) {
        found.kind = PLIMSOLL_ALLOCATOR_MIMALLOC;
        found.ownership = PLIMSOLL_OWNED;
        found.version = NULL;
        // The option's names before and since mimalloc 2.1.
        found.returns_at_once = is_zero("MIMALLOC_DECOMMIT_DELAY") || is_zero("MIMALLOC_PURGE_DELAY");
    } else if (has_malloc(tcmalloc, object)) {
        found.kind = PLIMSOLL_ALLOCATOR_TCMALLOC;
        found.ownership = PLIMSOLL_OWNED;
        found.version = NULL;
#ifdef __GLIBC__
    } else if (!object || has_malloc(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), object)) {
        found.kind = PLIMSOLL_ALLOCATOR_GLIBC;
        found.ownership = PLIMSOLL_OWNED;
        found.version = gnu_get_libc_version();
#endif
    }
}

const struct plimsoll_allocator *plimsoll_allocator(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
    if (found.kind == PLIMSOLL_ALLOCATOR_JEMALLOC) plimsoll_jemalloc_revive();
    return &found;
}

static bool owns(enum plimsoll_allocator_kind kind) {
    const struct plimsoll_allocator *allocator = plimsoll_allocator();
    return allocator->kind == kind && allocator->ownership == PLIMSOLL_OWNED;
}

void plimsoll_heap_give_back(bool full) {
    if (owns(PLIMSOLL_ALLOCATOR_JEMALLOC)) return plimsoll_jemalloc_give_back(full);
#ifdef __GLIBC__
    if (full && owns(PLIMSOLL_ALLOCATOR_GLIBC) && malloc_trim) malloc_trim(0);
#endif
}

bool plimsoll_heap_keep_less(size_t bytes) {
#ifdef __GLIBC__
    if (!owns(PLIMSOLL_ALLOCATOR_GLIBC) || !mallopt) return false;
    const char *tunables = getenv("GLIBC_TUNABLES");
    if (getenv("MALLOC_MMAP_THRESHOLD_") || getenv("MALLOC_TRIM_THRESHOLD_")) return false;
    if (tunables && (strstr(tunables, "glibc.malloc.mmap_threshold") || strstr(tunables, "glibc.malloc.trim_threshold"))) return false;
    return mallopt(M_MMAP_THRESHOLD, (int)bytes) == 1 && mallopt(M_TRIM_THRESHOLD, (int)bytes) == 1;
#else
    (void)bytes;
    return false;
#endif
}

bool plimsoll_heap_sample(struct plimsoll_heap_sample *sample) {
    return owns(PLIMSOLL_ALLOCATOR_JEMALLOC) && plimsoll_jemalloc_sample(sample);
}

bool plimsoll_heap_holes(size_t *free_bytes, size_t *holes) {
#ifdef HAS_MALLINFO2
    if (!owns(PLIMSOLL_ALLOCATOR_GLIBC) || !mallinfo2) return false;
    struct mallinfo2 info = mallinfo2();
    *free_bytes = info.fordblks;
    *holes = info.ordblks;
    return true;
#else
    (void)free_bytes;
    (void)holes;
    return false;
#endif
}

/// Runs before the rest of the program: a split heap ends in a crash without a message, most often within the first
/// second.
/// Searches for nothing if no jemalloc is linked.
__attribute__((constructor(101))) static void warn_of_split_heap(void) {
    static const char line[] =
        "plimsoll: split heap: malloc is jemalloc's, the C library's own calls use glibc's; this process crashes when it frees what "
        "strdup, getline or realpath returned. Link libjemalloc.so instead of libjemalloc.a.\n";
    if (!plimsoll_jemalloc_is_linked() || plimsoll_allocator()->ownership != PLIMSOLL_SPLIT) return;
    ssize_t written = write(STDERR_FILENO, line, sizeof line - 1);
    (void)written;
}

#else

// Away from Linux the allocator behind malloc stays unknown, and keeps what it has.
static const struct plimsoll_allocator unknown = {.kind = PLIMSOLL_ALLOCATOR_UNKNOWN, .ownership = PLIMSOLL_NOT_OWNED};

const struct plimsoll_allocator *plimsoll_allocator(void) { return &unknown; }
void plimsoll_heap_give_back(bool full) { (void)full; }
bool plimsoll_heap_keep_less(size_t bytes) { return (void)bytes, false; }
bool plimsoll_heap_sample(struct plimsoll_heap_sample *sample) { return (void)sample, false; }
bool plimsoll_heap_holes(size_t *free_bytes, size_t *holes) { return (void)free_bytes, (void)holes, false; }

#endif
