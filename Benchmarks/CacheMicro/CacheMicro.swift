import Benchmark
import Plimsoll

/// Measures operations of `PurgeableCache` one by one: instructions, time, memory. `swift package benchmark` runs them,
/// `make bench-micro` in short.
///
/// No counts of `malloc`: these need an interposer, which is left out. Instructions are counted where the processor's
/// counters are available, which is rare in virtual machines.
let benchmarks: @Sendable () -> Void = {
    Benchmark.defaultConfiguration = .init(
        metrics: [.instructions, .cpuTotal, .wallClock, .throughput, .peakMemoryResident], warmupIterations: 3,
        scalingFactor: .mega,
        maxDuration: .seconds(2))

    let entries = 100_000
    // Multiplied by an odd number: each key once, neighbours far apart.
    let keys = (0..<UInt64(entries)).map { $0 &* 0x9e37_79b9_7f4a_7c15 }

    func filled(_ capacity: Int = entries + entries / 4) -> PurgeableCache<UInt64, UInt64> {
        let cache = PurgeableCache<UInt64, UInt64>("micro", limit: ByteCount(capacity), cost: { _, _ in 1 })
        for key in keys { cache.insert(key, forKey: key) }
        return cache
    }

    /// Returns a place in `keys`, the k-th with a frequency of about 1 / k: a power of two, each as likely, minus a
    /// random number of steps.
    func zipfPlace(_ random: inout UInt64) -> Int {
        random = random &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        let power = 1 << Int((random >> 58) % 17)
        return min(entries - 1, power + Int(truncatingIfNeeded: random >> 33) & (power - 1))
    }

    Benchmark("hit") { benchmark in
        let cache = filled()
        benchmark.startMeasurement()
        for number in benchmark.scaledIterations { blackHole(cache.value(forKey: keys[number % entries])) }
    }

    Benchmark("miss") { benchmark in
        let cache = filled()
        benchmark.startMeasurement()
        for number in benchmark.scaledIterations { blackHole(cache.value(forKey: UInt64(number))) }
    }

    Benchmark("insert, evicting") { benchmark in
        let cache = filled(entries)
        benchmark.startMeasurement()
        for number in benchmark.scaledIterations { cache.insert(1, forKey: UInt64(number) << 32) }
    }

    Benchmark("insert, replacing") { benchmark in
        let cache = filled()
        benchmark.startMeasurement()
        for number in benchmark.scaledIterations { cache.insert(1, forKey: keys[number % entries]) }
    }

    Benchmark("get or insert, zipf, 10 % fit") { benchmark in
        let cache = filled(entries / 10)
        var random: UInt64 = 1
        benchmark.startMeasurement()
        for _ in benchmark.scaledIterations {
            let key = keys[zipfPlace(&random)]
            if let value = cache.value(forKey: key) { blackHole(value) } else { cache.insert(key, forKey: key) }
        }
    }

    Benchmark("remove and insert") { benchmark in
        let cache = filled()
        benchmark.startMeasurement()
        for number in benchmark.scaledIterations {
            let key = keys[number % entries]
            blackHole(cache.removeValue(forKey: key))
            cache.insert(key, forKey: key)
        }
    }

    let purging = Benchmark.Configuration(
        metrics: [.instructions, .cpuTotal, .wallClock], warmupIterations: 1, scalingFactor: .one)
    Benchmark("purge of 100 k entries", configuration: purging) { benchmark in
        let cache = filled()
        benchmark.startMeasurement()
        cache.removeAll()
        benchmark.stopMeasurement()
    }
}
