import Plimsoll

/// The requests of a mix in order, and the cost of each key.
struct MixedRequests {
    /// Bytes of a key in a trace without sizes.
    static let usualCost: UInt32 = 1000
    /// Most requests taken of one trace, so that a run takes seconds.
    static let longest = 2_000_000

    struct Request {
        var cache: UInt8
        /// Number of the trace, which is part of the key.
        var trace: UInt8
        var key: UInt32
        var cost: UInt32

        /// Number of the key among those of all traces.
        var id: UInt64 { UInt64(trace) << 32 | UInt64(key) }
    }

    /// The requests of one cache. Streams with one name are the same.
    struct Stream {
        var name: String
        var requests: [Request]
    }

    private(set) var requests: [Request] = []
    /// Bytes of all keys.
    private(set) var footprint = 0
    let traces: [TraceFile]

    /// Interleaves the traces evenly, by their rates or so that all end together.
    init(_ mix: Mix, _ traces: [TraceFile]) {
        self.traces = traces
        let lengths = traces.map { min($0.requests.count, Self.longest) }
        // Requests of each cache in a unit of the run. Where one has a rate, the others have 1.
        let isRated = mix.caches.contains { $0.rate != nil }
        let rates = mix.caches.indices.map { mix.caches[$0].rate ?? (isRated ? 1 : Double(lengths[$0])) }
        let end = zip(lengths, rates).map { Double($0) / $1 }.min() ?? 0, total = rates.reduce(0, +) * end
        requests.reserveCapacity(Int(total))
        var owner = Array(mix.caches.indices), position = mix.caches.map { _ in 0 },
            shifts = mix.shifts.sorted { $0.at < $1.at }
        // Time of the next request of each trace.
        var next = rates.map { 1 / $0 }
        while let trace = next.indices.min(by: { next[$0] < next[$1] }), next[trace] <= end {
            if let shift = shifts.first, next[trace] >= shift.at * end {
                shifts.removeFirst()
                if let first = owner.firstIndex(where: { mix.caches[$0].name == shift.first }),
                    let second = owner.firstIndex(where: { mix.caches[$0].name == shift.second })
                {
                    owner.swapAt(first, second)
                }
            }
            guard position[trace] < lengths[trace] else { break }
            let key = traces[trace].requests[position[trace]]
            requests.append(
                Request(
                    cache: UInt8(owner[trace]), trace: UInt8(trace), key: key, cost: Self.cost(of: key, traces[trace])))
            position[trace] += 1
            next[trace] += 1 / rates[trace]
        }
        footprint = traces.reduce(0) { sum, trace in
            sum + (trace.sizes.isEmpty ? trace.keyCount * Int(Self.usualCost) : trace.sizes.reduce(0) { $0 + Int($1) })
        }
    }

    /// Returns the stream of each cache. A cache whose trace never changes has the stream of that trace.
    func streams(_ mix: Mix) -> [Stream] {
        mix.caches.indices.map { cache in
            let own = requests.filter { Int($0.cache) == cache }
            let name = mix.shifts.isEmpty ? traces[cache].name : "\(mix.caches[cache].name) of \(mix.name)"
            return Stream(name: "\(name), \(own.count)", requests: own)
        }
    }

    static func cost(of key: UInt32, _ trace: TraceFile) -> UInt32 {
        trace.sizes.isEmpty ? usualCost : max(1, trace.sizes[Int(key)])
    }

    func bytes(of budget: Mix.Budget) -> Int {
        switch budget {
        case .bytes(let bytes): bytes
        case .part(let part): max(1, Int(Double(footprint) * part))
        }
    }
}
