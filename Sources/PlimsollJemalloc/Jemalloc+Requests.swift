import CPlimsollJemalloc
import Plimsoll

extension Jemalloc {
    /// Counts heap memory for the budgets of requests, `withMemoryBudget` and `withMemoryMeter`, from now on.
    ///
    /// Call once at the start of the program. jemalloc 5.3 or later calls back on each thread about every 64 KiB that
    /// the thread allocates or frees; the callback charges the budget of the current task. `malloc` and `free` cost
    /// the same as before.
    ///
    /// - Throws: `JemallocError` if nothing can be counted: jemalloc is absent, older than 5.3 or serves only a part of
    ///   the process, another part of the program uses the callback, or the program runs with a sanitizer. Budgets
    ///   then count charged bytes only.
    public static func meterRequests() async throws(JemallocError) {
        let allocator = HeapAllocator.current
        guard allocator.kind == .jemalloc, allocator.ownership == .owned else {
            throw JemallocError("cannot count the memory of requests: \(allocator.signal.detail)")
        }
        var state = plimsoll_meter_start(Unmanaged.passUnretained(MemoryBudget.$place).toOpaque())
        if state == PLIMSOLL_METER_RUNS { state = await stateOfPool() }
        if let reason = reason(state) {
            // Half a count would end the wrong requests.
            plimsoll_meter_stop()
            throw JemallocError("cannot count the memory of requests because \(reason)")
        }
    }

    /// Returns the state of a thread of the cooperative pool.
    @concurrent private static func stateOfPool() async -> plimsoll_meter_state { plimsoll_meter_state() }

    private static func reason(_ state: plimsoll_meter_state) -> String? {
        switch state {
        case PLIMSOLL_METER_RUNS: nil
        case PLIMSOLL_METER_HAS_NO_CALLBACK:
            "jemalloc \(HeapAllocator.current.version ?? "of unknown version") has no activity callback; use 5.3 or later"
        case PLIMSOLL_METER_IS_TAKEN:
            "another part of the program uses jemalloc's activity callback; only one part can"
        case PLIMSOLL_METER_HAS_NO_TASKS: "this Swift runtime does not tell the values of the current task"
        default: "threads start without notice, as under a sanitizer; run without"
        }
    }
}
