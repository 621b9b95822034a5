// Counts the allocations of the calling thread, by standing in front of the C library's malloc.
#ifndef CALLOCATION_COUNTER_H
#define CALLOCATION_COUNTER_H
#include <stdbool.h>
#include <stdint.h>
/// Calls of malloc, calloc, realloc and the aligned forms made by this thread so far.
uint64_t allocation_count(void);
/// False under a sanitizer, which counts for itself.
bool allocation_count_works(void);
#endif
