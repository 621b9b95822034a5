extension ResourceManager {
    /// Returns the number of bytes of one body that may be buffered now, for `collect(upTo:)` of NIO, AsyncHTTPClient,
    /// Hummingbird and `PlimsollGRPC`.
    ///
    ///     let body = try await response.body.collect(upTo: manager.collectLimit())
    ///
    /// The result is a share of the room that memory has, within two bounds: half of the share under a warning,
    /// `least` while memory is critical. If the room is unknown, the three levels give `most`, a quarter of `most`,
    /// and `least`. Call again for each body: the call costs two relaxed loads.
    ///
    /// - Parameters:
    ///   - share: share of the room for one body, in `0...1`; about one divided by the number of bodies buffered
    ///     concurrently.
    ///   - least: allowed even while memory is critical; enough for any request.
    ///   - most: upper bound, regardless of the room.
    /// - Returns: Bytes, `least` to `most`. `collect` of NIO rejects a longer body with `NIOTooManyBytesError`: answer
    ///   413, or 503 if the body would fit at another time.
    /// - Precondition: `share` is in its range, and `least` is neither negative nor above `most`.
    public func collectLimit(
        share: Double = 1.0 / 64, least: ByteCount = .kibibytes(64), most: ByteCount = .mebibytes(16)
    ) -> Int {
        precondition((0...1).contains(share), "collectLimit: share is \(share), allowed is 0...1")
        precondition(
            .zero <= least && least <= most,
            "collectLimit: least is \(least) and most \(most), allowed is 0 <= least <= most")
        let level = level
        let wanted =
            if let room { ByteCount(room) * (level == .normal ? share : share / 2) } else {
                level == .normal ? most : most * 0.25
            }
        return level == .critical ? least.bytes : min(max(wanted, least), most).bytes
    }
}
