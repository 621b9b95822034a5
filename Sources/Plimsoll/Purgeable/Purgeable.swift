/// An object that holds memory and can release that memory.
///
/// A manager calls a purgeable on the manager's own thread, never under a lock. All members may be called from any
/// thread.
public protocol Purgeable: AnyObject, Sendable {
    /// The name shown in reports.
    var name: String { get }

    /// Cost of making the contents again.
    var rebuildCost: RebuildCost { get }

    /// Bytes that `release` could release now.
    var heldBytes: Int { get }

    /// Releases at least `target` bytes, the least valuable first, or everything if less is held.
    ///
    /// - Returns: the bytes released. The manager itself measures how much the kernel got back.
    func release(_ target: Int) -> Int

    /// Releases memory kept ready besides the contents, such as spare buffers. Called on the way to the background.
    /// Handles and contents stay valid (C88).
    ///
    /// - Returns: the bytes released. The default does nothing.
    func dropSpares() -> Int

    /// Asks the purgeable to stay within `limit` from now on, without releasing anything for that. `nil` lifts the
    /// restriction. The default does nothing.
    func restrict(to limit: ByteCount?)

    /// Observed time to make a byte of the contents again, in nanoseconds; `nil` if unknown. Among purgeables of
    /// one `rebuildCost`, the cheapest to rebuild are asked first. Purgeables with an unknown rebuild time rank at
    /// the median. The default is `nil`.
    ///
    /// Read before each pass.
    var rebuildTimePerByte: Double? { get }

    /// True if a manager may ask the purgeable to release under pressure. A purgeable that returns false is
    /// registered for the rest: its name appears in the manager's reports, and its bytes are counted. If its
    /// charges are declared, its growth is bounded by the room in memory. The default is true.
    ///
    /// Read once, at registration.
    var releasesUnderPressure: Bool { get }
}

extension Purgeable {
    public func dropSpares() -> Int { 0 }
    public var rebuildTimePerByte: Double? { nil }
    public var releasesUnderPressure: Bool { true }
    public func restrict(to limit: ByteCount?) {}
}

/// A purgeable of this package that declares its memory, so that a manager bounds its growth.
package protocol MeteredPurgeable: Purgeable {
    /// Attaches the meter on which the purgeable may declare the bytes taken and released. Called once, at
    /// registration.
    ///
    /// - Returns: true if all memory held is declared on the meter.
    func attach(_ meter: ChargeMeter) -> Bool
}

extension MeteredPurgeable {
    package func attach(_ meter: ChargeMeter) -> Bool { false }
}

/// A `Purgeable` made of two closures: an adapter for code that has its own caches.
final class ClosurePurgeable: Purgeable {
    let name: String
    let rebuildCost: RebuildCost
    private let held: @Sendable () -> Int
    private let letGo: @Sendable (Int) -> Int

    init(
        _ name: String, rebuildCost: RebuildCost, held: @escaping @Sendable () -> Int,
        release: @escaping @Sendable (Int) -> Int
    ) {
        self.name = name
        self.rebuildCost = rebuildCost
        self.held = held
        letGo = release
    }

    var heldBytes: Int { held() }
    func release(_ target: Int) -> Int { letGo(target) }
}
