// Pages straight from the kernel, and advice about them. All functions return 0 or the errno of the failed call, unless
// stated otherwise.
#pragma once

#include <stddef.h>

/// Page size of this kernel; read once, before main, so that page accesses need no call.
extern size_t plimsoll_page_bytes;
static inline size_t plimsoll_page_size(void) { return plimsoll_page_bytes; }

/// Maps `bytes` of private zeroed memory whose address is a multiple of `alignment` (a power of two, at least a page).
/// Readable only, so that the memory counts neither as committed nor as resident, until plimsoll_open makes the memory
/// writable.
int plimsoll_map(size_t bytes, size_t alignment, void **address);

/// Ends a mapping.
int plimsoll_unmap(void *address, size_t bytes);

/// Makes part of a mapping writable, in small pages; a forked child sees zeros there (MADV_WIPEONFORK).
int plimsoll_open(void *address, size_t bytes);

/// Releases the pages of a part and leaves readable zeros in their place, in one call: a late reader reads zeros.
int plimsoll_blank(void *address, size_t bytes);

/// MADV_FREE: the kernel may take these pages whenever it needs memory, unless they are written to again.
int plimsoll_mark_volatile(void *address, size_t bytes);

/// MADV_PAGEOUT: makes the kernel reclaim a part now, as under memory pressure. Pages marked volatile are taken
/// (measured; mm/madvise.c calls mm/vmscan.c for them). Other pages stay if there is no swap. For tests.
int plimsoll_reclaim(void *address, size_t bytes);

/// MADV_DONTNEED: releases the pages now; they read as zeros and can be written again.
int plimsoll_drop(void *address, size_t bytes);

/// MADV_DONTNEED_LOCKED (Linux 5.18): the same for locked pages (mlockall), which plimsoll_drop refuses with EINVAL.
int plimsoll_drop_locked(void *address, size_t bytes);

/// Makes whole writable pages read as zeros in any case: releases them, locked or not, or else writes zeros. Returns
/// the errno of the failed call if the pages are still there. A concurrent reader of an aligned word sees the old word
/// or zero.
int plimsoll_empty(void *address, size_t bytes);

/// MADV_POPULATE_WRITE: faults pages in, all in one call. Fails before Linux 5.14, where first writes fault them in one
/// by one.
int plimsoll_populate(void *address, size_t bytes);

/// MADV_HUGEPAGE: lets the kernel use huge pages here.
int plimsoll_allow_huge_pages(void *address, size_t bytes);

/// mprotect: plimsoll_forbid removes all access, plimsoll_permit allows reading and writing.
int plimsoll_forbid(void *address, size_t bytes);
int plimsoll_permit(void *address, size_t bytes);

/// Reads one byte that the kernel may change behind the compiler's back.
static inline unsigned char plimsoll_peek(const void *address) { return *(const volatile unsigned char *)address; }

/// Copies bytes that another thread, or the kernel, may change meanwhile. The caller checks afterwards if they were
/// good; a thread sanitizer ignores the copy.
void plimsoll_copy_racing(void *to, const void *from, size_t bytes);

/// Prefetches a cache line that will be needed soon; harmless for any address.
static inline void plimsoll_prefetch(const void *address) { __builtin_prefetch(address); }

/// Returns a number that differs between threads, for spreading counters; no system call.
static inline unsigned long plimsoll_thread_number(void) { return (unsigned long)__builtin_thread_pointer(); }
