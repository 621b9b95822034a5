// Memory below the standard library: pages from the kernel, the allocator behind malloc, and what threads see of it.
#ifndef CPLIMSOLL_MEMORY_H
#define CPLIMSOLL_MEMORY_H

#include "allocator.h"
#include "mapping.h"
#include "seat.h"
#include "secret.h"

#endif
