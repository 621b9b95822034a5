import Foundation

/// All requests of a load, the same for each seed. They are made before the first one is sent, so that no answer
/// changes them.
public struct Trace: Sendable {
    /// In the order in which they are due. Those before 0 warm the service up and count nowhere.
    public let arrivals: [Arrival]
    /// Length of the part that counts, in seconds.
    public let seconds: Double
    /// Seconds before that part in which look-ups alone are sent.
    public let warmUp: Double

    /// Numbers of pictures and sessions, and the skews of their popularity.
    private static let pictures = (count: 20_000, skew: 0.9), sessions = (count: 2_000, skew: 0.7)
    /// Share of look-ups that are for pictures.
    private static let pictureShare = 0.8
    /// Rate of the warm-up as a share of the rate: with empty caches each look-up costs several times as much as later.
    private static let warmUpShare = 0.5
    /// Size of an upload as a share of the limit, seconds for which the upload is held, and seconds of the uploader's
    /// pause after that.
    private static let uploadShare = 0.08..<0.23, uploadTime = 0.3, pause = 0.3..<1.5
    /// Size of an export as a share of the limit; seconds between exports, before the first, and for which one lasts.
    private static let exportShare = 0.10, exportEvery = 15.0, firstExport = 5.0, exportTime = 4.0
    /// Share of the limit that the leak adds each second, and the share at which the leak is emptied.
    private static let leakShare = 0.01, leakMost = 0.30

    /// Makes a trace of look-ups that arrive at random (a Poisson process), `rate` a second on average, for `seconds`,
    /// and of the other requests of `kind`.
    ///
    /// - Parameters:
    ///   - kind: requests beside look-ups.
    ///   - limit: the service's memory limit in bytes, of which uploads, exports and leaks are shares.
    ///   - rate: look-ups a second.
    ///   - seconds: length of the part that counts.
    ///   - warmUp: seconds before that, with look-ups alone at half the rate.
    ///   - seed: the same seed makes the same trace.
    public init(_ kind: LoadKind, limit: Int, rate: Double, seconds: Double, warmUp: Double = 0, seed: UInt64) {
        self.seconds = seconds
        self.warmUp = warmUp
        // Each part has separate random numbers, so that look-ups are the same under every kind of load.
        var arrivals = Self.lookUps(rate, seconds, warmUp, SeededRandom(seed))
        for uploader in 0..<kind.uploaders {
            arrivals += Self.uploads(limit, seconds, SeededRandom(seed &+ 0x1000 &* UInt64(uploader + 1)))
        }
        if kind.exports {
            let bytes = Int(Double(limit) * Self.exportShare)
            arrivals += stride(from: Self.firstExport, to: seconds - Self.exportTime - 0.5, by: Self.exportEvery)
                .map { Arrival(at: $0, route: .export, number: bytes) }
        }
        if kind.leaks {
            let bytes = Int(Double(limit) * Self.leakShare), most = Int(Double(limit) * Self.leakMost)
            arrivals += stride(from: 0.5, to: seconds, by: 1).map {
                Arrival(at: $0, route: .leak, number: bytes, most: most)
            }
        }
        self.arrivals = arrivals.sorted { $0.at < $1.at }
    }

    private static func lookUps(_ rate: Double, _ seconds: Double, _ warmUp: Double, _ random: SeededRandom)
        -> [Arrival]
    {
        var random = random, arrivals: [Arrival] = []
        var pictures = Popularity(count: pictures.count, skew: pictures.skew, using: &random)
        let sessions = Popularity(count: sessions.count, skew: sessions.skew, using: &random)
        var at = -warmUp, hasShifted = false
        while true {
            at -= log(1 - random.share()) / (at < 0 ? rate * warmUpShare : rate)
            guard at < seconds else { return arrivals }
            if at >= seconds / 2, !hasShifted {
                pictures.shift(using: &random)
                hasShifted = true
            }
            let isPicture = random.share() < pictureShare
            arrivals.append(
                Arrival(
                    at: at, route: isPicture ? .picture : .session,
                    number: (isPicture ? pictures : sessions).next(using: &random)))
        }
    }

    private static func uploads(_ limit: Int, _ seconds: Double, _ random: SeededRandom) -> [Arrival] {
        var random = random, arrivals: [Arrival] = []
        func between(_ range: Range<Double>) -> Double {
            range.lowerBound + random.share() * (range.upperBound - range.lowerBound)
        }
        var at = between(0.5..<2)
        while at < seconds - uploadTime - 0.2 {
            arrivals.append(Arrival(at: at, route: .upload, number: Int(Double(limit) * between(uploadShare))))
            at += uploadTime + between(pause)
        }
        return arrivals
    }
}
