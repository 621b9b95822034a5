import Glibc

/// The seeds of a random test: `count` of them, unless `PLIMSOLL_RUNS` says how many, from `first` on, unless `PLIMSOLL_SEED` says which is the first.
///
/// A run is repeated by `PLIMSOLL_SEED=17 PLIMSOLL_RUNS=1 swift test --filter …`.
public func seeds(_ count: UInt64, from first: UInt64 = 0) -> Range<UInt64> {
    let first = number("PLIMSOLL_SEED") ?? first, count = number("PLIMSOLL_RUNS") ?? count
    let end = first.addingReportingOverflow(count)
    return first..<(end.overflow ? .max : end.partialValue)
}

private func number(_ name: String) -> UInt64? { getenv(name).flatMap { UInt64(String(cString: $0)) } }
