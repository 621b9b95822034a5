#define _GNU_SOURCE
#include "secret.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "kernel.h"
#include "mapping.h"

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

/// Writes zeros that no optimizer removes. explicit_bzero is not in every C library.
static void wipe(void *address, size_t bytes) {
    memset(address, 0, bytes);
    // The compiler must assume that the memory is read here.
    __asm__ volatile("" : : "r"(address) : "memory");
}

int plimsoll_secret_map(size_t bytes, void **address, unsigned *protections) {
    size_t page = plimsoll_page_size();
    if (bytes + 2 * page < bytes) return ENOMEM;
    unsigned char *start = mmap(NULL, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return errno;
    if (mprotect(start + page, bytes, PROT_READ | PROT_WRITE)) {
        int reason = errno;
        munmap(start, bytes + 2 * page);
        return reason;
    }
    *address = start + page;
    *protections = 0;
#ifdef PLIMSOLL_LINUX
    madvise(*address, bytes, MADV_NOHUGEPAGE);
    if (!madvise(*address, bytes, MADV_DONTDUMP)) *protections |= PLIMSOLL_SECRET_NOT_DUMPED;
    if (!madvise(*address, bytes, MADV_WIPEONFORK)) *protections |= PLIMSOLL_SECRET_ZERO_IN_CHILDREN;
#endif
    if (!mlock(*address, bytes)) *protections |= PLIMSOLL_SECRET_LOCKED;
    return 0;
}

void plimsoll_secret_unmap(void *address, size_t bytes) {
    size_t page = plimsoll_page_size();
    wipe(address, bytes);
    munmap((unsigned char *)address - page, bytes + 2 * page);
}

void plimsoll_secret_wipe(void *address, size_t bytes) { wipe(address, bytes); }

bool plimsoll_secret_equal(const void *left, const void *right, size_t bytes) {
    const volatile unsigned char *one = left, *other = right;
    unsigned char difference = 0;
    for (size_t i = 0; i < bytes; i++) difference |= one[i] ^ other[i];
    return difference == 0;
}
