// jemalloc 5, if present: found by name, never linked from here.
#pragma once

#include <dlfcn.h>

#include "allocator.h"

/// Returns a function by the weak reference to it, else by the name.
static inline void *plimsoll_find(void *linked, const char *name) { return linked ? linked : dlsym(RTLD_DEFAULT, name); }

/// Returns true if the program was linked with jemalloc or started with jemalloc preloaded; costs nothing.
bool plimsoll_jemalloc_is_linked(void);
/// Finds jemalloc's control functions and the names of the controls needed here. False if jemalloc is absent or too old
/// (before 5).
bool plimsoll_jemalloc_load(void);
const char *plimsoll_jemalloc_version(void);
/// Tells whether malloc is jemalloc's, in the program and in the C library.
enum plimsoll_ownership plimsoll_jemalloc_ownership(void);
/// Starts the background thread again in a forked child, which does not inherit the thread.
void plimsoll_jemalloc_revive(void);
void plimsoll_jemalloc_give_back(bool full);
bool plimsoll_jemalloc_sample(struct plimsoll_heap_sample *sample);
