#if NIO
public import Plimsoll

extension ResourceManager {
    /// How many bytes of one body may be buffered now, for `collect(upTo:)` of NIO, AsyncHTTPClient and Hummingbird.
    ///
    /// A share of the room that memory has, within two bounds: half of it under a warning, the least while memory is critical. Where no room is known, the most, a
    /// quarter of it, and the least. Ask for each body anew: two relaxed loads.
    ///
    /// ```swift
    /// let body = try await response.body.collect(upTo: manager.collectLimit())
    /// ```
    ///
    /// - Parameters:
    ///   - share: of the room for one body, in `0...1`; about one through the number of bodies that are buffered at once.
    ///   - least: allowed even while memory is critical; what every request needs.
    ///   - most: allowed however much room there is.
    /// - Returns: bytes, `least` to `most`. What is longer is refused by `collect` with `NIOTooManyBytesError`: an answer 413, or 503 if it would fit at another time.
    /// - Precondition: `share` is in its range, and `least` is neither negative nor above `most`.
    public func collectLimit(share: Double = 1.0 / 64, least: ByteCount = .kibibytes(64), most: ByteCount = .mebibytes(16)) -> Int {
        precondition((0...1).contains(share), "collectLimit: share is \(share), allowed is 0...1")
        precondition(.zero <= least && least <= most, "collectLimit: least is \(least) and most \(most), allowed is 0 <= least <= most")
        let level = level
        let wanted =
            if let room { ByteCount(room) * (level == .normal ? share : share / 2) } else { level == .normal ? most : most * 0.25 }
        return level == .critical ? least.bytes : min(max(wanted, least), most).bytes
    }
}
#endif
