// Memory below the standard library: pages from the kernel, and the allocator behind malloc.
#ifndef CPLIMSOLL_MEMORY_H
#define CPLIMSOLL_MEMORY_H

#include "allocator.h"
#include "mapping.h"
#include "secret.h"

#endif
