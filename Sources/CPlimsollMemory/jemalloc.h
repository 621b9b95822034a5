// jemalloc 5, if it is there: found by name, never linked from here.
#ifndef CPLIMSOLL_MEMORY_JEMALLOC_H
#define CPLIMSOLL_MEMORY_JEMALLOC_H

#include <dlfcn.h>

#include "allocator.h"

/// A function by the weak reference to it, else by its name.
static inline void *plimsoll_find(void *linked, const char *name) { return linked ? linked : dlsym(RTLD_DEFAULT, name); }

/// Whether the program was linked with jemalloc or started with it preloaded; costs nothing.
bool plimsoll_jemalloc_is_linked(void);
/// Finds its control functions and what they call what is needed here. False where it is absent or too old (before 5).
bool plimsoll_jemalloc_load(void);
const char *plimsoll_jemalloc_version(void);
/// Whether malloc is its own, and the C library's too.
enum plimsoll_ownership plimsoll_jemalloc_ownership(void);
/// Starts the background thread again in a forked child, which does not inherit it.
void plimsoll_jemalloc_revive(void);
void plimsoll_jemalloc_give_back(bool full);
bool plimsoll_jemalloc_sample(struct plimsoll_heap_sample *sample);

#endif
