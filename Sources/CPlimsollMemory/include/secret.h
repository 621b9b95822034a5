// Pages for secrets, and their erasure.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    /// MADV_DONTDUMP: no core dump contains the pages (Linux 3.4).
    PLIMSOLL_SECRET_NOT_DUMPED = 1,
    /// MADV_WIPEONFORK: a forked child reads zeros (Linux 4.14).
    PLIMSOLL_SECRET_ZERO_IN_CHILDREN = 2,
    /// mlock: the pages are never written to swap; RLIMIT_MEMLOCK bounds how much may be locked.
    PLIMSOLL_SECRET_LOCKED = 4,
};

/// Maps `bytes` (whole pages) of zeros between two inaccessible guard pages. Sets `protections` to those that the
/// kernel granted.
/// Returns 0 or the errno of the failed call.
int plimsoll_secret_map(size_t bytes, void **address, unsigned *protections);

/// Erases and unmaps such a mapping.
void plimsoll_secret_unmap(void *address, size_t bytes);

/// Writes zeros, even if no code reads them.
void plimsoll_secret_wipe(void *address, size_t bytes);

/// Returns true if both are equal, in a time that depends on `bytes` only.
bool plimsoll_secret_equal(const void *left, const void *right, size_t bytes);
