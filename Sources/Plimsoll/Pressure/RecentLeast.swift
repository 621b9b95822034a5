/// The minimum over the last one to two spans of time.
struct RecentLeast: Sendable {
    private var (current, previous) = (ByteCount.max, ByteCount.max)
    private var began = Duration.zero
    private let span: Duration

    init(span: Duration) { self.span = span }

    /// Adds `value` and returns the minimum.
    mutating func add(_ value: ByteCount, at now: Duration) -> ByteCount {
        let age = now - began
        if age >= span * 2 || age < .zero {
            (current, previous, began) = (.max, .max, now)
        } else if age >= span {
            (current, previous, began) = (.max, current, now)
        }
        current = min(current, value)
        return min(current, previous)
    }
}
