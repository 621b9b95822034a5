// Messages to the service manager. Results are 0 or more, or a negative errno.
#pragma once
#include <stddef.h>

/// Sends a datagram with descriptors to the socket at `path`, which is abstract if `path` begins with "@"; never
/// blocks.
int plimsoll_notify(const char *path, const void *bytes, size_t count, const int *descriptors, int descriptor_count);

/// Makes a file in memory, closed on exec.
int plimsoll_memory_file(const char *name);
