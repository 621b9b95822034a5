#include "CPlimsollJemalloc.h"
#include "CPlimsollMemory.h"

/// Asked for here, at run time: jemalloc's manual warns of a background thread configured into the program, which can deadlock when it starts.
/// One second is the default of `Jemalloc.setUp(decay:)`, where the reason is. What fails here stays as it was, and `Jemalloc.settings` tells.
__attribute__((constructor)) static void start(void) { plimsoll_jemalloc_tune(1000); }
