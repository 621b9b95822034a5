// Memory below the standard library: pages from the kernel, the allocator behind malloc, the bytes of requests, and
// per-thread reader slots.
#ifndef CPLIMSOLL_MEMORY_H
#define CPLIMSOLL_MEMORY_H

#include "allocator.h"
#include "budget.h"
#include "kernel.h"
#include "mapping.h"
#include "reader_slot.h"
#include "secret.h"

#endif
