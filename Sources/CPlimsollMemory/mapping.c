#define _GNU_SOURCE
#include "mapping.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernel.h"

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif
#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

size_t plimsoll_page_bytes = 4096;
__attribute__((constructor)) static void ask_page_size(void) { plimsoll_page_bytes = (size_t)sysconf(_SC_PAGESIZE); }

int plimsoll_map(size_t bytes, size_t alignment, void **address) {
    size_t page = plimsoll_page_size(), slack = alignment > page ? alignment - page : 0;
    if (bytes + slack < bytes) return ENOMEM;
    uint8_t *start = mmap(NULL, bytes + slack, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return errno;
    size_t before = (alignment - (uintptr_t)start % alignment) % alignment;
    if (before) munmap(start, before);
    if (slack > before) munmap(start + before + bytes, slack - before);
    *address = start + before;
    return 0;
}

int plimsoll_unmap(void *address, size_t bytes) { return munmap(address, bytes) ? errno : 0; }

int plimsoll_open(void *address, size_t bytes) {
    if (mprotect(address, bytes, PROT_READ | PROT_WRITE)) return errno;
#ifdef PLIMSOLL_LINUX
    // If huge pages are the default (transparent_hugepage=always), a few small pages would take 2 MiB.
    madvise(address, bytes, MADV_NOHUGEPAGE);
    return madvise(address, bytes, MADV_WIPEONFORK) ? errno : 0;
#else
    return 0;
#endif
}

int plimsoll_blank(void *address, size_t bytes) {
    void *blank = mmap(address, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return blank == MAP_FAILED ? errno : 0;
}

#ifdef PLIMSOLL_LINUX
int plimsoll_mark_volatile(void *address, size_t bytes) { return madvise(address, bytes, MADV_FREE) ? errno : 0; }
int plimsoll_reclaim(void *address, size_t bytes) { return madvise(address, bytes, MADV_PAGEOUT) ? errno : 0; }
int plimsoll_drop(void *address, size_t bytes) { return madvise(address, bytes, MADV_DONTNEED) ? errno : 0; }
int plimsoll_drop_locked(void *address, size_t bytes) { return madvise(address, bytes, MADV_DONTNEED_LOCKED) ? errno : 0; }
int plimsoll_populate(void *address, size_t bytes) { return madvise(address, bytes, MADV_POPULATE_WRITE) ? errno : 0; }
int plimsoll_allow_huge_pages(void *address, size_t bytes) { return madvise(address, bytes, MADV_HUGEPAGE) ? errno : 0; }
#else
int plimsoll_mark_volatile(void *address, size_t bytes) { return (void)address, (void)bytes, ENOTSUP; }
int plimsoll_reclaim(void *address, size_t bytes) { return (void)address, (void)bytes, ENOTSUP; }
// Other kernels' MADV_DONTNEED promises no zeros. A new mapping does.
int plimsoll_drop(void *address, size_t bytes) {
    void *zeros = mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return zeros == MAP_FAILED ? errno : 0;
}
int plimsoll_drop_locked(void *address, size_t bytes) { return plimsoll_drop(address, bytes); }
int plimsoll_populate(void *address, size_t bytes) { return (void)address, (void)bytes, ENOTSUP; }
int plimsoll_allow_huge_pages(void *address, size_t bytes) { return (void)address, (void)bytes, ENOTSUP; }
#endif

int plimsoll_forbid(void *address, size_t bytes) { return mprotect(address, bytes, PROT_NONE) ? errno : 0; }
int plimsoll_permit(void *address, size_t bytes) { return mprotect(address, bytes, PROT_READ | PROT_WRITE) ? errno : 0; }

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PLIMSOLL_TSAN 1
#endif
#endif

int plimsoll_empty(void *address, size_t bytes) {
    if (!plimsoll_drop(address, bytes)) return 0;
    int error = plimsoll_drop_locked(address, bytes);
    // Word by word: memset promises readers nothing about words.
    if (error) for (size_t i = 0; i < bytes / sizeof(uint64_t); i++) __atomic_store_n((uint64_t *)address + i, 0, __ATOMIC_RELAXED);
    return error;
}

#ifdef PLIMSOLL_TSAN
__attribute__((no_sanitize("thread"))) void plimsoll_copy_racing(void *to, const void *from, size_t bytes) {
    volatile uint8_t *target = to;
    const volatile uint8_t *source = from;
    for (size_t i = 0; i < bytes; i++) target[i] = source[i];
}
#else
void plimsoll_copy_racing(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
#endif
