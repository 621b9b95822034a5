// Memory below the standard library: pages from the kernel, the allocator behind malloc, the bytes of requests, and
// per-thread reader slots.
#pragma once

#include "allocator.h"
#include "budget.h"
#include "kernel.h"
#include "mapping.h"
#include "reader_slot.h"
#include "secret.h"
