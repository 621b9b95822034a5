#define _GNU_SOURCE
#include "CPlimsollMemory.h"

#include <dlfcn.h>
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

bool plimsoll_heap_can_trim(void) {
#ifdef __GLIBC__
    // Another malloc in front (jemalloc, tcmalloc, a sanitizer) resolves first; glibc's own trim would
    // then walk arenas that hold nothing.
    Dl_info owner, library;
    void *in_front = dlsym(RTLD_DEFAULT, "malloc");
    if (!in_front || !dladdr(in_front, &owner)) return false;
    if (!dladdr((void *)malloc_trim, &library)) return false;
    return owner.dli_fbase == library.dli_fbase;
#else
    return false;
#endif
}

bool plimsoll_heap_holes(size_t *free_bytes, size_t *holes) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
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

bool plimsoll_heap_trim(void) {
#ifdef __GLIBC__
    return malloc_trim(0) == 1;
#else
    return false;
#endif
}
