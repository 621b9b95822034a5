/// Where readings come from. The manager's thread calls `read` and `wait` in turn; the rest may be called from any thread.
public protocol PressureSource: Sendable {
    /// Which signals are live, and why the others are not.
    var capabilities: Capabilities { get }

    /// What is to be seen now, stamped `at`. Allocates nothing once the source is warm.
    ///
    /// - Throws: if nothing can be read at all. A single missing signal is a `nil` in the reading, not an error.
    func read(at: Duration) throws(PressureSourceError) -> PressureReading

    /// Blocks the calling thread until something happens or `limit` has passed.
    func wait(atMost limit: Duration)

    /// Ends a `wait`, the present one or else the next.
    func wake()

    /// Resident memory of this process and usage of its group, for measuring what an action brought.
    func footprint() -> Footprint

    /// Whether a usage above the warning margin of `thresholds` ends a `wait` by itself, so that nobody need look often far from it.
    var rings: Bool { get }

    /// What else of the process's surroundings can be watched; `nil` for nothing.
    var environment: (any EnvironmentSource)? { get }
}

extension PressureSource {
    public var environment: (any EnvironmentSource)? { nil }
}

/// What a process and its group occupy at one instant.
public struct Footprint: Sendable, Hashable, Codable {
    /// Resident memory of this process (`/proc/self/statm`).
    public var resident: ByteCount
    /// Usage of its group where the tightest limit sits; zero if unknown.
    public var usage: ByteCount

    /// Both numbers.
    public init(resident: ByteCount = .zero, usage: ByteCount = .zero) {
        self.resident = resident
        self.usage = usage
    }
}

/// Nothing could be read.
public struct PressureSourceError: Error, Sendable, Hashable, CustomStringConvertible {
    /// What was asked of which file, and why it failed.
    public var description: String

    /// An error with that explanation.
    public init(_ description: String) { self.description = description }
}
