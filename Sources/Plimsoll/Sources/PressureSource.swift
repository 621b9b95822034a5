/// A source of pressure readings. The manager's thread calls `read` and `wait` in turn. Other members may be called
/// from any thread.
public protocol PressureSource: Sendable {
    /// Live signals, and the reasons why the others are missing.
    var capabilities: Capabilities { get }

    /// Returns a reading of the present state, stamped `at`. Allocates nothing once the source is warm.
    ///
    /// - Throws: an error if nothing can be read at all. A single missing signal is a `nil` in the reading, not
    ///   an error.
    func read(at: Duration) throws(PressureSourceError) -> PressureReading

    /// Blocks the calling thread until an event occurs or `limit` has passed.
    func wait(atMost limit: Duration)

    /// Ends a `wait`: the present one, or else the next.
    func wake()

    /// Returns the resident memory of this process and the usage of its group, to measure the effect of an action.
    func footprint() -> Footprint

    /// True if a usage above the warning margin of `thresholds` ends a `wait` by itself, so that polling far below
    /// the margin can be slow.
    var rings: Bool { get }
}

/// An error that tells that nothing could be read.
public struct PressureSourceError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The operation, the file, and the reason of the failure.
    public var description: String

    /// Creates an error with that explanation.
    public init(_ description: String) { self.description = description }
}
