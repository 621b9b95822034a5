// Counts the allocations of the calling thread, by a malloc in front of the C library's malloc.
#ifndef CALLOCATION_COUNTER_H
#define CALLOCATION_COUNTER_H
#include <stdbool.h>
#include <stdint.h>
/// Returns the number of calls of malloc, calloc, realloc and the aligned forms by this thread so far.
uint64_t allocation_count(void);
/// Returns false under a sanitizer, which needs its own malloc.
bool allocation_count_works(void);
#endif
