import FoundationEssentials
import Plimsoll
import PlimsollLifecycle

/// The metric families of a manager. Names use base units, and end in `_total` for monotonic counters.
///
/// An unknown value has no point rather than a point of zero: no limit, no stall counter in the kernel, a purgeable
/// without counts.
enum MetricCatalogue {
    /// Returns all families, ordered from the kernel's figures to the actions taken.
    static func families(_ status: ManagerStatus) -> [MetricFamily] {
        memory(status) + pressure(status) + actions(status.counts) + caches(status.holders)
            + requests(status.requests) + tasks(status.tasks)
            + process(status)
    }

    private static func memory(_ status: ManagerStatus) -> [MetricFamily] {
        var usage = MetricFamily(
            "plimsoll_memory_usage_bytes", .gauge, "Memory of the group with the tightest limit")
        var workingSet = MetricFamily(
            "plimsoll_memory_working_set_bytes", .gauge, "Memory of the group without inactive page cache")
        var resident = MetricFamily("plimsoll_memory_resident_bytes", .gauge, "Resident memory of the process")
        var charged = MetricFamily(
            "plimsoll_memory_caches_bytes", .gauge, "Memory of caches on the heap, by their own accounting")
        var volatile = MetricFamily(
            "plimsoll_memory_volatile_bytes", .gauge, "Memory of caches in pages that the kernel may reclaim")
        var limit = MetricFamily("plimsoll_memory_limit_bytes", .gauge, "The tightest limit, by its place")
        var line = MetricFamily(
            "plimsoll_memory_line_bytes", .gauge, "Memory that cannot be reclaimed at which a level begins")
        var available = MetricFamily(
            "plimsoll_memory_available_bytes", .gauge, "Memory that can still be allocated below the limit")
        var ratio = MetricFamily(
            "plimsoll_memory_used_ratio", .gauge, "Memory that cannot be reclaimed, as a share of the limit")
        var unreleasable = MetricFamily(
            "plimsoll_memory_unreleasable_ratio", .gauge,
            "Used memory less what registered caches can release, as a share of the limit; for autoscalers")
        var stall = MetricFamily(
            "plimsoll_memory_stall_seconds_total", .counter, "Time in which some or all tasks stalled on memory")
        var events = MetricFamily(
            "plimsoll_group_events_total", .counter, "Times the group met its limits, and processes killed")
        var lazyFreed = MetricFamily(
            "plimsoll_kernel_reclaimed_volatile_bytes_total", .counter,
            "Volatile memory that the kernel reclaimed in the group")
        if let memory = status.memory {
            usage.add(memory.usageBytes)
            workingSet.add(memory.workingSetBytes)
            resident.add(memory.residentBytes)
            charged.add(memory.chargedBytes)
            volatile.add(memory.volatileBytes)
            if let bytes = memory.limitBytes { limit.add(bytes, ["boundary": memory.boundary]) }
            if let bytes = memory.warningLineBytes { line.add(bytes, ["level": "warning"]) }
            if let bytes = memory.criticalLineBytes { line.add(bytes, ["level": "critical"]) }
            if let bytes = memory.availableBytes {
                available.add(bytes)
                if let limit = memory.limitBytes, limit > 0 {
                    ratio.add(Double(limit - bytes) / Double(limit))
                    let rest = Double(limit - bytes) - releasableBytes(status.holders)
                    unreleasable.add(max(0, rest) / Double(limit))
                }
            }
            if let seconds = memory.stallSomeSeconds { stall.add(seconds, ["kind": "some"]) }
            if let seconds = memory.stallFullSeconds { stall.add(seconds, ["kind": "full"]) }
            if let counts = memory.events {
                for (event, count) in [
                    ("high", counts.high), ("max", counts.max), ("oom", counts.oom), ("oom_kill", counts.oomKill),
                ] {
                    events.add(count, ["event": event])
                }
            }
            if let bytes = memory.lazyFreedBytes { lazyFreed.add(bytes) }
        }
        return [
            usage, workingSet, resident, charged, volatile, limit, line, available, ratio, unreleasable, stall, events,
            lazyFreed,
        ]
    }

    /// Returns the heap memory that holders release when asked. Volatile memory is left out: the kernel takes those
    /// pages itself, so `availableBytes` contains them already.
    static func releasableBytes(_ holders: [HolderStatus]) -> Double {
        holders.reduce(0) { sum, holder in
            guard holder.releasesUnderPressure else { return sum }
            return sum + max(0, Double(holder.heldBytes) - Double(max(0, holder.volatileBytes ?? 0)))
        }
    }

    private static func pressure(_ status: ManagerStatus) -> [MetricFamily] {
        var level = MetricFamily("plimsoll_level", .gauge, "0 normal, 1 warning, 2 critical")
        level.add(status.level == "critical" ? 2 : status.level == "warning" ? 1 : 0)
        var dryRun = MetricFamily("plimsoll_dry_run", .gauge, "1 if the policy only decides and reports")
        dryRun.add(status.isDryRun ? 1 : 0)
        var shortfall = MetricFamily("plimsoll_shortfall_bytes", .gauge, "Bytes to free to be back above the line")
        var growth = MetricFamily(
            "plimsoll_growth_bytes_per_second", .gauge, "Growth of memory that cannot be reclaimed")
        var share = MetricFamily(
            "plimsoll_stall_ratio", .gauge, "Share of the last ten seconds in which at least one task stalled on memory"
        )
        if let memory = status.memory {
            shortfall.add(memory.shortfallBytes)
            growth.add(memory.growthBytesPerSecond)
            share.add(memory.stallShare)
        }
        var transitions = MetricFamily(
            "plimsoll_transitions_total", .counter, "Changes of level, by new level and evidence")
        for transition in status.counts.transitions {
            transitions.add(transition.count, ["to": transition.to, "source": label(transition.source)])
        }
        var dropped = MetricFamily(
            "plimsoll_events_dropped_total", .counter, "Events dropped before observers or listeners received them")
        for item in status.counts.dropped { dropped.add(item.count, ["reason": item.reason]) }
        return [level, dryRun, shortfall, growth, share, transitions, dropped]
    }

    private static func actions(_ counts: ManagerCounts) -> [MetricFamily] {
        var actions = MetricFamily("plimsoll_actions_total", .counter, "Actions of the policy, by mode and outcome")
        for action in counts.actions {
            actions.add(
                action.count, ["action": label(action.action), "mode": label(action.mode), "outcome": action.outcome])
        }
        var duration = MetricFamily("plimsoll_release_duration_seconds", .histogram, "Durations of releases")
        let releases = counts.releases
        var sum = 0
        let atMost = zip(ManagerCounts.Releases.bounds, releases.byDuration).map { bound, count in
            sum += count
            return (bound: bound, count: sum)
        }
        duration.distribution = .init(atMost: atMost, count: releases.count, sum: releases.seconds)
        var released = MetricFamily(
            "plimsoll_released_bytes_total", .counter, "Bytes that purgeables reported as released")
        released.add(releases.releasedBytes, ["kind": "ordinary"])
        released.add(releases.releasedVolatileBytes, ["kind": "volatile"])
        var taken = MetricFamily(
            "plimsoll_taken_bytes_total", .counter,
            "Volatile memory of caches that the kernel was found to have reclaimed")
        taken.add(releases.takenBytes)
        var returned = MetricFamily("plimsoll_returned_bytes_total", .counter, "Measured falls of memory by releases")
        returned.add(releases.residentFallBytes, ["measure": "resident"])
        returned.add(releases.usageFallBytes, ["measure": "group"])
        return [actions, duration, released, taken, returned]
    }

    private static func requests(_ requests: RequestsStatus?) -> [MetricFamily] {
        var held = MetricFamily(
            "plimsoll_requests_held_bytes", .gauge, "Heap memory of the requests that have a budget")
        var largest = MetricFamily(
            "plimsoll_requests_largest_bytes", .gauge, "Heap memory of the request that holds most")
        var cancelled = MetricFamily(
            "plimsoll_requests_cancelled_total", .counter, "Requests cancelled for their memory, by reason")
        if let requests {
            held.add(requests.heldBytes)
            largest.add(requests.largest.first?.heldBytes ?? 0)
            cancelled.add(requests.cancelledOverLimit, ["reason": "limit"])
            cancelled.add(requests.cancelledForPressure, ["reason": "pressure"])
        }
        return [held, largest, cancelled]
    }

    private static func caches(_ holders: [HolderStatus]) -> [MetricFamily] {
        var bytes = MetricFamily(
            "plimsoll_cache_bytes", .gauge, "Bytes that registered purgeables hold")
        var volatile = MetricFamily(
            "plimsoll_cache_volatile_bytes", .gauge, "Bytes of caches in pages that the kernel may reclaim")
        var limit = MetricFamily("plimsoll_cache_limit_bytes", .gauge, "Limits of caches")
        var entries = MetricFamily("plimsoll_cache_entries", .gauge, "Entries of caches")
        var requests = MetricFamily("plimsoll_cache_requests_total", .counter, "Look-ups, by whether a value was found")
        var removals = MetricFamily(
            "plimsoll_cache_removals_total", .counter,
            "Entries removed, by cause; dropped_by_kernel counts entries in reclaimed pages")
        var rejected = MetricFamily(
            "plimsoll_cache_rejected_total", .counter, "Inserts refused for their cost or for lack of room")
        var loads = MetricFamily("plimsoll_cache_loads_total", .counter, "Loads of missing values, by result")
        var seconds = MetricFamily(
            "plimsoll_cache_load_seconds_total", .counter, "Total time of successful loads")
        var share = MetricFamily(
            "plimsoll_cache_share_bytes", .gauge, "Bytes that a cache keeps at the limit, if memory is divided by worth"
        )
        var target = MetricFamily(
            "plimsoll_cache_target_bytes", .gauge, "Share of least load time, towards which the share moves")
        var marginal = MetricFamily(
            "plimsoll_cache_marginal_load_ratio", .gauge, "Load time a second that 64 MiB more would save")
        for holder in holders {
            let name = holder.name
            bytes.add(holder.heldBytes, ["cache": name])
            if let held = holder.volatileBytes { volatile.add(held, ["cache": name]) }
            if let most = holder.limitBytes { limit.add(most, ["cache": name]) }
            if let worth = holder.worth {
                share.add(worth.shareBytes, ["cache": name])
                target.add(worth.targetBytes, ["cache": name])
                marginal.add(worth.more.savedLoadSecondsPerMinute / 60, ["cache": name])
            }
            guard let cache = holder.cache else { continue }
            entries.add(cache.count, ["cache": name])
            requests.add(cache.hits, ["cache": name, "result": "hit"])
            requests.add(cache.misses, ["cache": name, "result": "miss"])
            let reasons = [
                ("evicted", cache.evictions), ("expired", cache.expired), ("purged", cache.purged),
                ("dropped_by_kernel", cache.droppedByKernel),
                ("replaced", cache.replaced),
            ]
            for (reason, count) in reasons { removals.add(count, ["cache": name, "reason": reason]) }
            rejected.add(cache.rejected, ["cache": name])
            loads.add(cache.loads, ["cache": name, "result": "done"])
            loads.add(cache.loadFailures, ["cache": name, "result": "failed"])
            seconds.add(cache.loadTime.inSeconds, ["cache": name])
        }
        return [
            bytes, volatile, limit, entries, requests, removals, rejected, loads, seconds, share, target, marginal,
        ]
    }

    private static func tasks(_ tasks: TasksStatus) -> [MetricFamily] {
        var running = MetricFamily("plimsoll_tasks", .gauge, "Background tasks, by state")
        running.add(tasks.running - tasks.expiring, ["state": "running"])
        running.add(tasks.expiring, ["state": "expiring"])
        var outcomes = MetricFamily("plimsoll_tasks_total", .counter, "Background tasks, by outcome")
        let counts = [
            ("ended", tasks.ended), ("expired", tasks.expired), ("given_up", tasks.givenUp), ("leaked", tasks.leaked),
            ("refused", tasks.refused),
        ]
        for (outcome, count) in counts { outcomes.add(count, ["outcome": outcome]) }
        return [running, outcomes]
    }

    private static func process(_ status: ManagerStatus) -> [MetricFamily] {
        var running = MetricFamily("plimsoll_admissions_running", .gauge, "Work that limiters run now")
        var waiting = MetricFamily("plimsoll_admissions_waiting", .gauge, "Work that waits for a limiter now")
        var allowed = MetricFamily("plimsoll_admissions_limit", .gauge, "Work that limiters run at most at once")
        var admitted = MetricFamily(
            "plimsoll_admissions_total", .counter, "Work that limiters admitted, by priority if the work has one")
        var shed = MetricFamily(
            "plimsoll_requests_shed_total", .counter,
            "Work that limiters refused, at once or after a wait (either, for work with a priority)")
        for member in status.admissions {
            running.add(member.running, ["limiter": member.name])
            waiting.add(member.waiting, ["limiter": member.name])
            if member.limit < .max { allowed.add(member.limit, ["limiter": member.name]) }
            // All points of a family have the same labels: instruments of swift-metrics may require that.
            guard let requests = member.requests else {
                admitted.add(Double(member.admitted), ["limiter": member.name, "priority": "none"])
                shed.add(Double(member.refused), ["limiter": member.name, "priority": "none", "when": "at_once"])
                shed.add(Double(member.expired), ["limiter": member.name, "priority": "none", "when": "after_waiting"])
                continue
            }
            for (priority, count) in requests.admitted.sorted(by: { $0.key < $1.key }) {
                admitted.add(Double(count), ["limiter": member.name, "priority": priority])
                // The counts by priority include requests that waited before they were refused.
                shed.add(
                    Double(requests.refused(priority)),
                    ["limiter": member.name, "priority": priority, "when": "any"])
            }
        }
        var ready = MetricFamily("plimsoll_ready", .gauge, "1 if the process should be sent work")
        ready.add(status.lifecycle.isReady ? 1 : 0)
        var state = MetricFamily("plimsoll_lifecycle_state", .gauge, "1 for the current state of the process")
        for name in LifecycleState.allCases.map({ "\($0)" }) {
            state.add(name == status.lifecycle.state ? 1 : 0, ["state": name])
        }
        var signals = MetricFamily("plimsoll_signal_live", .gauge, "1 for each signal that works")
        for signal in status.signals { signals.add(signal.isLive ? 1 : 0, ["signal": label(signal.name)]) }
        var build = MetricFamily("plimsoll_build_info", .gauge, "1 for the version of the library")
        build.add(1, ["version": Version.current])
        var start = MetricFamily(
            "plimsoll_start_time_seconds", .gauge, "Unix time when this run of the process began to report")
        start.add(startTime)
        var previous = MetricFamily(
            "plimsoll_previous_run_info", .gauge,
            "1 for the end of the previous run; crashed includes kills whose cause is not known")
        // No point before the launch has read the record: an instrument of swift-metrics would keep the first value.
        if let end = status.lifecycle.previousRun ?? (status.lifecycle.stage == "complete" ? "unknown" : nil) {
            previous.add(1, ["end": snakeCase(end)])
        }
        return [running, waiting, allowed, admitted, shed, ready, state, build, start, previous, signals]
    }

    /// Unix time of the first use of the catalogue, which a `ResourceService` makes when created.
    static let startTime = Date().timeIntervalSince1970

    /// Returns a name in the form of a label value: `failed_launch`.
    private static func snakeCase(_ name: String) -> String {
        name.reduce(into: "") { $0 += $1.isUppercase ? "_" + $1.lowercased() : String($1) }
    }

    /// Returns words in the form of a label value: `limit_events`.
    private static func label(_ words: String) -> String { words.replacing(" ", with: "_") }
}
