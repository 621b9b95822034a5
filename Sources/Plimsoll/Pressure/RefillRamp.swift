/// Limits how fast caches may grow back after a shortage: not at all while readings show one, then in steps (T24,
/// CacheLib's rate window).
struct RefillRamp: Sendable {
    /// Share of the room that is granted now.
    private var share = 1.0
    private var nextStep = Duration.zero
    private var isShort = false

    /// True if all the room is granted.
    var isFull: Bool { share >= 1 }

    static let step = Duration.seconds(1)
    static let firstShare = 0.125

    /// Returns the bytes that caches may take until the next reading.
    ///
    /// - Parameters:
    ///   - room: bytes left above the line; `nil` if no limit is known, and then the result is unbounded.
    ///   - level: the level that readings support now.
    mutating func allowance(room: ByteCount?, level: PressureLevel, at now: Duration) -> ByteCount {
        guard let room else { return .max }
        isShort = level > .normal
        if isShort {
            share = Self.firstShare
            nextStep = now + Self.step
        } else if share < 1, now >= nextStep {
            share = min(1, share * 2)
            nextStep = now + Self.step
        }
        return portion(of: room)
    }

    /// Returns the share last granted, applied to another room.
    func portion(of room: ByteCount) -> ByteCount { isShort ? .zero : isFull ? room : room * share }
}
