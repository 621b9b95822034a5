/// The worth of memory to the caches of a process in sum. A process tells the supervisor that divides memory among
/// several.
package struct WorthOffer: Sendable, Hashable {
    /// Bytes that the caches hold.
    package var held: Int
    /// Bytes that the caches could still take before memory is at its limit.
    package var room: Int
    /// Load time, in nanoseconds a second, by the bytes that the caches hold.
    package var curve: MissCurve

    package init(held: Int, room: Int, curve: MissCurve) { (self.held, self.room, self.curve) = (held, room, curve) }
}

/// The share of a process in the memory for caches of several processes, as its supervisor divides that memory.
package struct ProcessShare: Sendable, Hashable {
    /// The most that the caches may hold; `nil` for no bound.
    package var bytes: Int?
    /// Bytes that are divided among all processes. The process offers a curve up to this size.
    package var total: Int

    package init(bytes: Int?, total: Int) { (self.bytes, self.total) = (bytes, total) }
}
