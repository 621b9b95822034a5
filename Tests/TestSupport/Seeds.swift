import Glibc

/// Returns the seeds of a random test: `count` seeds from `first` on. `PLIMSOLL_RUNS` overrides `count`, and
/// `PLIMSOLL_SEED` overrides `first`.
///
/// `PLIMSOLL_SEED=17 PLIMSOLL_RUNS=1 swift test --filter …` repeats a run.
public func seeds(_ count: UInt64, from first: UInt64 = 0) -> Range<UInt64> {
    let first = number("PLIMSOLL_SEED") ?? first, count = number("PLIMSOLL_RUNS") ?? count
    let end = first.addingReportingOverflow(count)
    return first..<(end.overflow ? .max : end.partialValue)
}

/// Returns the usual seeds of a random test and `PLIMSOLL_RUNS` new ones, one by default, which are printed. With
/// `PLIMSOLL_SEED`, returns only that seed and the `PLIMSOLL_RUNS` minus one seeds after it.
public func seeds(_ usual: Range<UInt64>, file: StaticString = #fileID, line: UInt = #line) -> [UInt64] {
    let runs = number("PLIMSOLL_RUNS") ?? 1
    if let first = number("PLIMSOLL_SEED") { return (0..<max(1, runs)).map { first &+ $0 } }
    let new = (0..<runs).map { _ in anySeed() }
    for seed in new { print("# seed \(seed) \(file):\(line)") }
    return usual + new
}

/// Returns the seed of a random test with one seed: `PLIMSOLL_SEED`, or a new seed. Prints the seed.
public func newSeed(file: StaticString = #fileID, line: UInt = #line) -> UInt64 {
    let seed = number("PLIMSOLL_SEED") ?? anySeed()
    print("# seed \(seed) \(file):\(line)")
    return seed
}

/// Returns the seed of a random test whose expectations were made for `usual`: `usual`, or `PLIMSOLL_SEED`.
public func usualSeed(_ usual: UInt64) -> UInt64 { number("PLIMSOLL_SEED") ?? usual }

/// True if `PLIMSOLL_SEED` names the seed. One input need not show everything that all inputs of a test show together.
public let hasChosenSeed = number("PLIMSOLL_SEED") != nil

/// Returns a seed that is small enough for a test to calculate with, and far from the usual seeds.
private func anySeed() -> UInt64 { .random(in: 1 << 20..<1 << 32) }

/// Returns the number in an environment variable.
private func number(_ name: String) -> UInt64? { getenv(name).flatMap { UInt64(String(cString: $0)) } }
