#include "budget.h"

#include <stdatomic.h>
#include <stdlib.h>

// Relaxed throughout: each counter is a sum by itself, and orders no other memory access. The reason of a mark is
// published with release after the bytes, and read with acquire.
struct plimsoll_budget {
    _Atomic int64_t live, peak, bytes_at_mark;
    _Atomic int reason;
    int64_t limit;
    plimsoll_budget *outer;
};

static struct {
    void (*ring)(void *);
    void *context;
} bell;

static _Atomic(void (*)(plimsoll_budget *)) meter;

plimsoll_budget *plimsoll_budget_make(int64_t limit, plimsoll_budget *outer) {
    plimsoll_budget *budget = calloc(1, sizeof *budget);
    if (!budget) return NULL;
    budget->limit = limit;
    budget->outer = outer;
    return budget;
}

void plimsoll_budget_free(plimsoll_budget *budget) { free(budget); }

bool plimsoll_budget_mark(plimsoll_budget *budget, enum plimsoll_budget_end reason) {
    // A claim first: one thread writes the bytes, and publishes them with the reason.
    int expected = PLIMSOLL_BUDGET_GOES_ON;
    if (!atomic_compare_exchange_strong_explicit(&budget->reason, &expected, -(int)reason, memory_order_relaxed, memory_order_relaxed))
        return false;
    atomic_store_explicit(&budget->bytes_at_mark, plimsoll_budget_live(budget), memory_order_relaxed);
    atomic_store_explicit(&budget->reason, (int)reason, memory_order_release);
    if (bell.ring) bell.ring(bell.context);
    return true;
}

enum plimsoll_budget_end plimsoll_budget_marked(const plimsoll_budget *budget, int64_t *bytes) {
    int reason = atomic_load_explicit(&budget->reason, memory_order_acquire);
    if (reason <= 0) return PLIMSOLL_BUDGET_GOES_ON;
    if (bytes) *bytes = atomic_load_explicit(&budget->bytes_at_mark, memory_order_relaxed);
    return (enum plimsoll_budget_end)reason;
}

void plimsoll_budget_add(plimsoll_budget *budget, int64_t bytes) {
    for (; budget; budget = budget->outer) {
        int64_t live = atomic_fetch_add_explicit(&budget->live, bytes, memory_order_relaxed) + bytes;
        int64_t peak = atomic_load_explicit(&budget->peak, memory_order_relaxed);
        while (live > peak && !atomic_compare_exchange_weak_explicit(&budget->peak, &peak, live, memory_order_relaxed, memory_order_relaxed)) {}
        if (live > budget->limit && atomic_load_explicit(&budget->reason, memory_order_relaxed) == PLIMSOLL_BUDGET_GOES_ON)
            plimsoll_budget_mark(budget, PLIMSOLL_BUDGET_OVER_LIMIT);
    }
}

int64_t plimsoll_budget_live(const plimsoll_budget *budget) { return atomic_load_explicit(&budget->live, memory_order_relaxed); }

int64_t plimsoll_budget_peak(const plimsoll_budget *budget) { return atomic_load_explicit(&budget->peak, memory_order_relaxed); }

void plimsoll_budget_when_marked(void (*ring)(void *), void *context) {
    bell.context = context;
    bell.ring = ring;
}

void plimsoll_budget_set_meter(void (*settle)(plimsoll_budget *)) {
    // Release, with the acquire below: the function's own set-up is complete.
    atomic_store_explicit(&meter, settle, memory_order_release);
}

bool plimsoll_budget_is_metered(void) { return atomic_load_explicit(&meter, memory_order_relaxed) != NULL; }

void plimsoll_budget_settle(plimsoll_budget *budget) {
    void (*settle)(plimsoll_budget *) = atomic_load_explicit(&meter, memory_order_acquire);
    if (settle) settle(budget);
}
