import Plimsoll

/// Checks that calls from another module are specialized: compares a hit as any client writes one with a hit that is
/// kept generic.
///
/// Compares processor time and not machine code, because the whole path of a hit counts, however the path is cut into
/// functions.
struct Specialization {
    /// The largest allowed ratio. A generic hit goes through metadata and witnesses at each step, which takes several
    /// times as long.
    static let most = 0.5

    private let cache = PlimsollStore<UInt64, UInt64>(capacity: 2000)
    private let keys = Keys.keys(1000)

    init() { for key in keys { cache.insert(key, forKey: key) } }

    /// Returns the processor time of the specialized hit over that of the generic one.
    func ratio(rounds: Int) -> Double {
        var ratios: [Double] = []
        for round in 0...rounds {
            let specialized = time { keys.withUnsafeBufferPointer { cache.look($0).weight } }
            let generic = time { keys.withUnsafeBufferPointer { Self.genericWeight(cache.cache, $0) } }
            if round > 0 { ratios.append(specialized / generic) }
        }
        return median(ratios) ?? .nan
    }

    private func time(_ pass: () -> Int) -> Double {
        let start = SteadyClock.thread
        var weight = 0
        for _ in 0..<200 { weight &+= pass() }
        let time = (SteadyClock.thread - start).inSeconds
        precondition(weight != 0, "nothing was found")
        return time
    }

    @inline(never)
    @_semantics("optimize.sil.specialize.generic.never")
    private static func genericWeight<Key, Value: Weighable>(
        _ cache: PurgeableCache<Key, Value>, _ keys: UnsafeBufferPointer<Key>
    ) -> Int {
        var weight = 0
        for key in keys { weight &+= cache.value(forKey: key)?.weight ?? 0 }
        return weight
    }
}
