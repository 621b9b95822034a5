import Plimsoll

/// The caches of a service at one time, with what memory is worth to them, as a line of a recording.
struct CachesRecord: Codable, Equatable {
    struct Cache: Codable, Equatable {
        var name: String
        var requestsPerSecond: Double
        var loadSeconds: Double
        var curve: [WorthStatus.Point]
    }

    var atMicroseconds: Int
    /// Memory that the kernel cannot reclaim, without that of caches and other purgeables.
    var liveBytes: Int
    /// Bytes of purgeables whose curve is not known, volatile memory excluded.
    var otherBytes: Int
    /// Caches whose curves are known.
    var caches: [Cache]

    /// Reason why the record is invalid; `nil` if a service could have said this.
    var problem: String? {
        let numbers = [atMicroseconds, liveBytes, otherBytes] + caches.flatMap { $0.curve.map(\.bytes) }
        if let wrong = numbers.first(where: { $0 < 0 || $0 > 1 << 60 }) { return "\(wrong) is no size or time" }
        let rates = caches.flatMap { [$0.requestsPerSecond, $0.loadSeconds] + $0.curve.map(\.missRatio) }
        if let wrong = rates.first(where: { $0 < 0 || $0 > 1e12 }) { return "\(wrong) is no rate, ratio or load time" }
        return nil
    }
}

extension CachesRecord {
    /// Returns the record of a status; `nil` before the first reading.
    init?(_ status: ManagerStatus, at time: Duration) {
        guard let memory = status.memory else { return nil }
        // The numbers come from another process.
        func clamped(_ bytes: Int) -> Int { min(max(0, bytes), 1 << 50) }
        func finite(_ number: Double) -> Double { number.isFinite ? min(max(0, number), 1e12) : 0 }
        atMicroseconds = Int(time.inNanoseconds / 1000)
        let firm =
            memory.limitBytes.flatMap { limit in memory.availableBytes.map { clamped(limit) - clamped($0) } }
            ?? clamped(memory.usageBytes) - clamped(memory.volatileBytes)
        liveBytes = max(0, firm - clamped(memory.chargedBytes))
        otherBytes = status.holders.filter { $0.worth == nil }.reduce(0) {
            min(1 << 50, $0 + max(0, clamped($1.heldBytes) - clamped($1.volatileBytes ?? 0)))
        }
        caches = status.holders.compactMap { holder in
            holder.worth.map { worth in
                Cache(
                    name: holder.group.isEmpty ? holder.name : "\(holder.group)/\(holder.name)",
                    requestsPerSecond: finite(worth.requestsPerSecond),
                    loadSeconds: finite(worth.loadSeconds),
                    curve: worth.curve.map { .init(bytes: clamped($0.bytes), missRatio: min(1, finite($0.missRatio))) })
            }
        }
    }
}

/// The limit that a service needs, from records of the memory and the caches.
struct SizeAdvice {
    /// Parts of the load time that caches save, which may be lost.
    static let losses = [0, 0.01, 0.05, 0.1]

    struct Row: Equatable {
        var loss: Double
        var caches: ByteCount
        var limit: ByteCount
    }

    /// Largest live memory of all records.
    let live: ByteCount
    /// Other purgeables in the last record.
    let other: ByteCount
    let names: [String]
    /// Largest size that the curves tell of, summed up.
    let known: ByteCount
    let rows: [Row]

    /// Creates the advice. Curves of all records count, by their requests.
    init(_ records: [CachesRecord]) {
        live = ByteCount(records.map(\.liveBytes).max() ?? 0)
        other = ByteCount(records.last?.otherBytes ?? 0)
        var curves: [String: [CachesRecord.Cache]] = [:]
        for cache in records.flatMap(\.caches) { curves[cache.name, default: []].append(cache) }
        let holders = curves.keys.sorted().map { name in
            (name: name, holder: Self.holder(curves[name] ?? [], of: records.count))
        }
        names = holders.map(\.name)
        known = holders.reduce(.zero) { $0 + ByteCount($1.holder.curve?.points.last?.bytes ?? 0) }
        rows = Self.losses.map { [live, other] loss in
            let caches = ByteCount(Sizing.leastBytes(holders.map(\.holder), losing: loss))
            return Row(loss: loss, caches: caches, limit: Sizing.limit(needed: live + other + caches))
        }
    }

    /// Returns the mean of a cache's curves, at the sizes of the last one.
    private static func holder(_ curves: [CachesRecord.Cache], of count: Int) -> Division.Holder {
        let each = curves.map { cache in
            MissCurve(
                requests: cache.requestsPerSecond,
                points: cache.curve.map { .init(bytes: $0.bytes, misses: $0.missRatio * cache.requestsPerSecond) })
        }
        func mean(_ sum: Double) -> Double { sum / Double(max(1, count)) }
        let points = (each.last?.points ?? []).map { point in
            MissCurve.Point(
                bytes: point.bytes, misses: mean(each.reduce(0) { $0 + $1.misses(at: point.bytes) }))
        }
        let loads = zip(curves, each).reduce(0) { $0 + $1.0.loadSeconds * $1.1.requests }
        let requests = each.reduce(0) { $0 + $1.requests }
        return Division.Holder(
            held: 0, curve: MissCurve(requests: mean(requests), points: points),
            loadTime: requests > 0 ? loads / requests * 1e9 : 0)
    }
}
