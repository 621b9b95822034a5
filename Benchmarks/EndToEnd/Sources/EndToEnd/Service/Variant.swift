import Plimsoll

/// Way in which the service keeps its caches within memory.
enum Variant: Equatable {
    /// Caches without a bound.
    case unbounded
    /// Foundation's cache, with pictures bounded at so many percent of the limit.
    case nscache(percent: Int)
    /// This library's cache as a plain one, with pictures bounded at so many percent of the limit.
    case fixed(percent: Int)
    /// Plimsoll with nothing set.
    case plimsoll(Managed)

    /// Deviation of a managed service from the standard.
    enum Managed: String { case standard, heap, unshed, heapProportional = "heap-proportional" }

    /// Reads a name; `jemalloc-N` is `fixed-N` to the service, which the runner starts with another allocator.
    init?(_ name: String) {
        switch name {
        case "none": self = .unbounded
        case "plimsoll": self = .plimsoll(.standard)
        default:
            let parts = name.split(separator: "-", maxSplits: 1)
            if parts.first == "plimsoll", let kind = Managed(rawValue: String(parts.last ?? "")), kind != .standard {
                self = .plimsoll(kind)
                return
            }
            guard parts.count == 2, let percent = Int(parts[1]), (1...90).contains(percent) else { return nil }
            switch parts[0] {
            case "nscache": self = .nscache(percent: percent)
            case "fixed", "jemalloc": self = .fixed(percent: percent)
            default: return nil
            }
        }
    }

    /// Names for help texts and errors.
    static let names =
        "none, nscache-N, fixed-N, jemalloc-N (N percent of the limit for pictures), plimsoll or plimsoll-KIND: heap (pictures on the heap), unshed or heap-proportional (caches not divided by worth)"
}
