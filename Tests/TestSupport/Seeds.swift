import Glibc

/// The seeds of a random test: `count` of them, unless `PLIMSOLL_RUNS` says how many, from `first` on, unless `PLIMSOLL_SEED` says which is the first.
///
/// A run is repeated by `PLIMSOLL_SEED=17 PLIMSOLL_RUNS=1 swift test --filter …`.
public func seeds(_ count: UInt64, from first: UInt64 = 0) -> Range<UInt64> {
    let first = number("PLIMSOLL_SEED") ?? first, count = number("PLIMSOLL_RUNS") ?? count
    let end = first.addingReportingOverflow(count)
    return first..<(end.overflow ? .max : end.partialValue)
}

/// The seeds that a random test always has and `PLIMSOLL_RUNS` new ones, one by default, which are printed.
/// With `PLIMSOLL_SEED` that one and the `PLIMSOLL_RUNS` minus one after it, and no others.
public func seeds(_ usual: Range<UInt64>, file: StaticString = #fileID, line: UInt = #line) -> [UInt64] {
    let runs = number("PLIMSOLL_RUNS") ?? 1
    if let first = number("PLIMSOLL_SEED") { return (0..<max(1, runs)).map { first &+ $0 } }
    let new = (0..<runs).map { _ in anySeed() }
    for seed in new { print("# seed \(seed) \(file):\(line)") }
    return usual + new
}

/// The seed of a random test that has one: a new one, which is printed, or `PLIMSOLL_SEED`.
public func newSeed(file: StaticString = #fileID, line: UInt = #line) -> UInt64 {
    let seed = number("PLIMSOLL_SEED") ?? anySeed()
    print("# seed \(seed) \(file):\(line)")
    return seed
}

/// The seed of a random test whose expectations were made for `usual`: that one, or `PLIMSOLL_SEED`.
public func usualSeed(_ usual: UInt64) -> UInt64 { number("PLIMSOLL_SEED") ?? usual }

/// Whether `PLIMSOLL_SEED` names the seed: one input need not show everything that all of a test's inputs do together.
public let hasChosenSeed = number("PLIMSOLL_SEED") != nil

/// A seed that is small enough for a test to calculate with, and far from those that tests always have.
private func anySeed() -> UInt64 { .random(in: 1 << 20..<1 << 32) }

/// The number that an environment variable holds.
private func number(_ name: String) -> UInt64? { getenv(name).flatMap { UInt64(String(cString: $0)) } }
