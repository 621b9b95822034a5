/// Something that holds memory and can let go of it.
///
/// A manager calls it on a thread of its own, never under a lock. Everything may be called from any thread.
public protocol Purgeable: AnyObject, Sendable {
    /// How reports name it.
    var name: String { get }

    /// What it costs to make its contents again.
    var rebuildCost: RebuildCost { get }

    /// Bytes that `release` could let go of now.
    var heldBytes: Int { get }

    /// Lets go of at least `target` bytes, what is least worth keeping first, or of everything if it holds less.
    ///
    /// - Returns: bytes let go of. The manager measures what the kernel got back on its own.
    func release(_ target: Int) -> Int

    /// Lets go of what it keeps ready besides its contents, such as spare buffers. On the way to the background; handles and contents stay good (C88).
    ///
    /// - Returns: bytes let go of. Does nothing unless implemented.
    func dropSpares() -> Int

    /// Asks it to stay within `limit` from now on without freeing for it; `nil` lifts the restriction. Does nothing unless implemented.
    func restrict(to limit: ByteCount?)

    /// Nanoseconds that it takes to make a byte of its contents again, as observed; `nil` if that isn't known. Among holders of one `rebuildCost` those are asked
    /// first for which it is least; one that doesn't know stands in their middle. `nil` unless implemented.
    ///
    /// Asked before each pass.
    var rebuildTimePerByte: Double? { get }

    /// Whether it is asked to release under pressure. One that isn't is registered for the rest: it is named in what a manager reports, its bytes are counted, and
    /// it grows only while memory has room if it declares what it takes. True unless implemented.
    ///
    /// Asked once, when it is registered.
    var releasesUnderPressure: Bool { get }

    /// Called once when it is registered, with the meter on which it may declare what it takes and gives back.
    ///
    /// - Returns: whether it declares everything it holds there; false unless implemented.
    func attach(_ meter: ChargeMeter) -> Bool
}

extension Purgeable {
    public func dropSpares() -> Int { 0 }
    public var rebuildTimePerByte: Double? { nil }
    public var releasesUnderPressure: Bool { true }
    public func restrict(to limit: ByteCount?) {}
    public func attach(_ meter: ChargeMeter) -> Bool { false }
}

/// Two closures as a `Purgeable`: an adapter for what has caches of its own.
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
