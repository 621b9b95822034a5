// The switch of mutants, compiled into a copy of CPlimsollProcess.
#ifndef PLIMSOLL_MUTANT_H
#define PLIMSOLL_MUTANT_H

#include <stdbool.h>

#define PLIMSOLL_MOST_MUTANTS 65536

/// The mutant that is on; 0 for none. Set before main.
extern int plimsoll_active_mutant;
/// A byte for each mutant, set once the code of the mutant has run. Shared with child processes that inherit the
/// environment.
extern unsigned char *plimsoll_reached;

/// Returns true if the mutant is on. Data races on the byte are harmless: all threads store the same value.
static inline bool plimsoll_mutant(int id) {
    __atomic_store_n(&plimsoll_reached[id], 1, __ATOMIC_RELAXED);
    return __builtin_expect(id == plimsoll_active_mutant, 0);
}

#endif
