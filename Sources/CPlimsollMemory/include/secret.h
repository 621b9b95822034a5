// Pages for what nobody else is to see, and erasing them.
#ifndef CPLIMSOLL_MEMORY_SECRET_H
#define CPLIMSOLL_MEMORY_SECRET_H

#include <stdbool.h>
#include <stddef.h>

enum {
    /// MADV_DONTDUMP: no core dump contains them (Linux 3.4).
    PLIMSOLL_SECRET_NOT_DUMPED = 1,
    /// MADV_WIPEONFORK: a forked child reads zeros (Linux 4.14).
    PLIMSOLL_SECRET_ZERO_IN_CHILDREN = 2,
    /// mlock: they are never written to swap; RLIMIT_MEMLOCK bounds how much may be locked.
    PLIMSOLL_SECRET_LOCKED = 4,
};

/// Maps `bytes` (whole pages) of zeros between two pages that nobody may touch. `protections` tells what the kernel granted.
/// Returns 0 or the errno of what failed.
int plimsoll_secret_map(size_t bytes, void **address, unsigned *protections);

/// Erases and ends such a mapping.
void plimsoll_secret_unmap(void *address, size_t bytes);

/// Writes zeros, even if nobody reads them (explicit_bzero).
void plimsoll_secret_wipe(void *address, size_t bytes);

/// Whether both are the same, in a time that depends on `bytes` only.
bool plimsoll_secret_equal(const void *left, const void *right, size_t bytes);

#endif
