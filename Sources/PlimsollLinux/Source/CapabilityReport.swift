#if canImport(Glibc) && !PLIMSOLL_INERT
import Plimsoll

/// Collects the live signals, and the dead ones with reasons.
struct CapabilityReport {
    private(set) var signals: [Capabilities.Signal] = []

    mutating func live(_ name: String, _ detail: String, remedy: String? = nil) {
        signals.append(.init(name, isLive: true, detail, remedy: remedy))
    }
    mutating func dead(_ name: String, _ detail: String, remedy: String? = nil) {
        signals.append(.init(name, isLive: false, detail, remedy: remedy))
    }

    func isLive(_ name: String) -> Bool { signals.contains { $0.name == name && $0.isLive } }

    /// Returns the best of the live kinds of support.
    func support(hasGroupLimit: Bool) -> Capabilities.Support {
        if isLive("announced") { return .announced }
        if hasGroupLimit, isLive("usage") { return .ownGroup }
        if isLive("usage") || isLive("stall") { return .machine }
        if isLive("limit events") { return .events }
        return isLive("resident") ? .polling : .inert
    }
}

extension CgroupReader {
    /// Returns all signals, in order from the kernel to a level.
    func makeCapabilities() -> Capabilities {
        var report = CapabilityReport()
        reportLimit(&report)
        reportUsage(&report)
        reportEventSources(&report)
        reportStall(&report)
        reportAnnouncements(&report)
        reportBrake(&report)
        reportFreezer(&report)
        if hasResident {
            report.live("resident", residentFile.path)
        } else {
            report.dead("resident", "\(residentFile.path): \(residentFile.failure ?? .malformed)")
        }
        return Capabilities(support: report.support(hasGroupLimit: tightest != nil), signals: report.signals)
    }

    private func reportLimit(_ report: inout CapabilityReport) {
        let setLimit =
            "set a limit where the service runs (MemoryMax= in its unit, or the container's memory limit) so that it is warned before the machine is full"
        if let tightest {
            report.live("limit", "\(ByteCount(tightest.limit)): \(tightest.limitFile.path)")
        } else if let memory = machineMemory {
            var why = "no group has a limit"
            var remedy = setLimit
            if case .hidden(let reason) = group.memory {
                why = reason
                remedy = "let the process see its own cgroup: mount cgroup version 2 in its own cgroup namespace"
            } else if let failure = chain.failure {
                why = failure
            } else if chain.first == nil {
                why = "the memory controller is off in \(group.memory.path ?? "the group")"
                remedy =
                    "enable it (MemoryAccounting=yes in the unit, or +memory in the parent's cgroup.subtree_control)"
            }
            report.live("limit", "\(ByteCount(memory.total)): the machine's, as \(why)", remedy: remedy)
        } else {
            report.dead("limit", "\(machine.file.path): \(machine.file.failure ?? .malformed)", remedy: "mount /proc")
        }
    }

    private func reportUsage(_ report: inout CapabilityReport) {
        if let tightest, tightest.usageFile.failure == nil {
            report.live("usage", tightest.usageFile.path)
            if let failure = tightest.statFile.failure {
                report.dead("reclaimable", "\(tightest.statFile.path): \(failure); page cache counts as used")
            } else {
                report.live("reclaimable", tightest.statFile.path)
            }
        } else if machineMemory != nil {
            let lost = tightest.map { "; \($0.usageFile.path): \($0.usageFile.failure ?? .malformed)" } ?? ""
            report.live("usage", "\(machine.file.path), the machine's\(lost)")
            report.live("reclaimable", "\(machine.file.path), MemAvailable")
        } else {
            report.dead("usage", "neither a group's nor the machine's usage can be read")
            report.dead("reclaimable", "neither a group's nor the machine's can be read")
        }
    }

    private func reportEventSources(_ report: inout CapabilityReport) {
        if let limitEvents, limitEvents.counts != nil {
            let silent = limitEvents.isWakeupLive ? "" : ", whose counts are polled, as it sends no notification"
            report.live("limit events", limitEvents.file.path + silent)
        } else {
            report.dead(
                "limit events",
                limitEvents.map { "\($0.file.path): \($0.file.failure ?? .malformed)" }
                    ?? "no group with the memory controller is visible")
        }
        if let usage = thresholds?.warningUsage {
            report.live(
                "usage thresholds",
                "\(tightest?.directory ?? "")/cgroup.event_control, notifying at \(ByteCount(usage))")
        } else if let thresholds, let failure = thresholds.failure {
            report.dead(
                "usage thresholds", "\(tightest?.directory ?? "")/cgroup.event_control: \(failure)",
                remedy: "let the service write to its own group")
        } else {
            let why =
                group.version == .v1 || tightest == nil
                ? "there is no limit to derive a threshold from"
                : "cgroup version 2 has none; usage is read near the limit instead"
            report.dead("usage thresholds", why)
        }
    }

    private func reportStall(_ report: inout CapabilityReport) {
        if let path = stall.path, stall.isLive {
            let elsewhere = stall.groupFailure.map { ", the machine's, as \($0)" } ?? ""
            report.live("stall", path + elsewhere)
        } else {
            let why = [stall.groupFailure, stall.failure].compactMap { $0 }.joined(separator: "; ")
            report.dead(
                "stall", why.isEmpty ? "can no longer be read" : why,
                remedy: "boot with psi=1 on a kernel that has CONFIG_PSI")
        }
        switch (stall.trigger, announcement.plan) {
        case (_, .disabled): report.dead("stall trigger", "disabled by $MEMORY_PRESSURE_WATCH")
        case (_, .watch(let watch)) where watch.kind == .stallFile:
            report.dead("stall trigger", "the service manager's is used instead")
        case _ where !options.usesTriggers: report.dead("stall trigger", "not requested")
        case (let trigger?, _):
            if let threshold = trigger.threshold {
                report.live(
                    "stall trigger", "\(trigger.path), \(threshold.stall / 1000) ms in \(threshold.window / 1000) ms")
            } else {
                let why = trigger.failure.map { "\($0)" } ?? "not armed"
                report.dead("stall trigger", "\(trigger.path): \(why); the total is read once a second instead")
            }
        case (nil, _): report.dead("stall trigger", "no stall information to watch")
        }
    }

    private func reportAnnouncements(_ report: inout CapabilityReport) {
        switch announcement.plan {
        case .absent:
            report.dead(
                "announced", "$MEMORY_PRESSURE_WATCH is not set",
                remedy: "set MemoryPressureWatch=on in the service's unit")
        case .disabled: report.dead("announced", "disabled by $MEMORY_PRESSURE_WATCH")
        case .refused(let reason), .unreachable(let reason): report.dead("announced", reason)
        case .watch(let watch):
            if announcement.isLive {
                report.live("announced", watch.path)
            } else {
                report.dead("announced", announcement.failure ?? "\(watch.path) is not open")
            }
        }
    }

    private func reportBrake(_ report: inout CapabilityReport) {
        if let held = throttle?.held, let own = group.memory.path {
            report.live("throttle", "\(own)/memory.high at \(ByteCount(held.ours))")
        } else if tightest?.hasBrake == true, let path = tightest?.limitFile.path {
            report.live("throttle", "\(path), set by the operator")
        } else {
            let advice =
                "set MemoryHigh= a tenth below MemoryMax= in the service's unit, or Delegate=yes and set the option setsHigh"
            let why =
                throttle.map { $0.failure ?? "not set yet" }
                ?? (group.version == .v1
                    ? "cgroup version 1 has no memory.high"
                    : options.setsHigh ? "there is no own version 2 group with the memory controller" : "not requested")
            report.dead(
                "throttle", why,
                remedy: group.version == .v1 ? "boot with cgroup version 2, which has memory.high" : advice)
        }
    }

    /// Reports the freezer that a supervisor may suspend this process with (C14). Without a freezer, suspended means
    /// quiesced.
    private func reportFreezer(_ report: inout CapabilityReport) {
        guard let own = group.unified.path else {
            report.dead(
                "freezer",
                "no cgroup version 2 group is visible: suspension is limited to components that the process pauses itself"
            )
            return
        }
        if case .regular = kernel.status(of: own + "/cgroup.freeze") {
            report.live("freezer", "\(own)/cgroup.freeze, for a supervisor")
        } else {
            // kernel/cgroup/cgroup.c: the root group has none, and kernels before 5.2 neither.
            report.dead(
                "freezer",
                "\(own) has no cgroup.freeze: suspension is limited to components that the process pauses itself",
                remedy: "run the service in a group of its own, as a unit or a container")
        }
    }
}
#endif
