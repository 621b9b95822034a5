/// How fast caches may grow back after a shortage: not at all while readings show one, then in steps (T24, CacheLib's rate window).
struct RefillRamp: Sendable {
    /// Share of the room given each step.
    private var share = 1.0
    private var nextStep = Duration.zero
    private var isShort = false

    /// Whether all the room is given.
    var isFull: Bool { share >= 1 }

    static let step = Duration.seconds(1)
    static let firstShare = 0.125

    /// Bytes that caches may take until the next look.
    ///
    /// - Parameters:
    ///   - room: what is left above the line; `nil` if no limit is known, then nothing bounds them here.
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

    /// As much of another room as was given of that one last.
    func portion(of room: ByteCount) -> ByteCount { isShort ? .zero : isFull ? room : room * share }
}
