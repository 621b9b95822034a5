// Tells if the code is compiled for the Linux kernel.
#pragma once

/// Defined where the calls of the Linux kernel exist, with any C library. Elsewhere the functions that need the kernel
/// return ENOTSUP, false or nothing. PLIMSOLL_INERT compiles that branch on Linux as well, for tests.
#if defined(__linux__) && !defined(PLIMSOLL_INERT)
#define PLIMSOLL_LINUX 1
#endif
