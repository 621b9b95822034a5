#include "CPlimsollJemalloc.h"
#include "CPlimsollMemory.h"

/// Sets jemalloc up here, at run time: jemalloc's manual warns of a background thread configured into the program,
/// which can deadlock when it starts. One second is the default of `Jemalloc.setUp(decay:)`, where the reason is.
/// Settings that fail here stay as they were, and `Jemalloc.settings` shows them.
__attribute__((constructor)) static void start(void) { plimsoll_jemalloc_tune(1000); }
