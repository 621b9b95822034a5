// The bytes that requests hold: counters that any thread adds to, also a thread inside malloc.
#pragma once

#include <stdbool.h>
#include <stdint.h>

/// The bytes of one request, or of one part of a request. Bytes of a part also count for the budget around that part.
typedef struct plimsoll_budget plimsoll_budget;

/// The reason why a request is to end.
enum plimsoll_budget_end {
    PLIMSOLL_BUDGET_GOES_ON,
    /// The request, or a part, holds more than its limit.
    PLIMSOLL_BUDGET_OVER_LIMIT,
    /// Memory is short, and the request holds most.
    PLIMSOLL_BUDGET_FOR_PRESSURE,
};

/// Makes a budget with a limit in bytes; INT64_MAX for none. `outer` is the budget around this one, or NULL, and must
/// live as long. NULL if malloc fails.
plimsoll_budget *plimsoll_budget_make(int64_t limit, plimsoll_budget *outer);
void plimsoll_budget_free(plimsoll_budget *budget);

/// Adds bytes, or subtracts them if negative, here and in the budgets around. NULL is allowed and does nothing. A budget
/// above its limit is marked, and rings. Takes no lock and allocates nothing.
void plimsoll_budget_add(plimsoll_budget *budget, int64_t bytes);

/// The bytes held now, and the most so far. Negative if more was freed than allocated.
int64_t plimsoll_budget_live(const plimsoll_budget *budget);
int64_t plimsoll_budget_peak(const plimsoll_budget *budget);

/// Marks a budget to end for that reason, and rings. Returns false if the budget is marked already.
bool plimsoll_budget_mark(plimsoll_budget *budget, enum plimsoll_budget_end reason);
/// The reason of the mark, and the bytes held when the budget was marked.
enum plimsoll_budget_end plimsoll_budget_marked(const plimsoll_budget *budget, int64_t *bytes);

/// Sets the function that is called, possibly inside malloc, when a budget was marked. Set once, before the first
/// budget is made. Must not allocate, and must not take a lock under which anything allocates.
void plimsoll_budget_when_marked(void (*ring)(void *), void *context);

/// Sets the function that charges what the calling thread has allocated since the last call; see
/// `plimsoll_budget_settle`.
void plimsoll_budget_set_meter(void (*settle)(plimsoll_budget *));
/// Returns true if there is such a function.
bool plimsoll_budget_is_metered(void);
/// Charges what the calling thread has allocated and freed since the last call to `budget`; NULL charges nobody. Does
/// nothing if nothing counts allocations.
void plimsoll_budget_settle(plimsoll_budget *budget);
