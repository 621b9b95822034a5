import CPlimsollMemory
import Synchronization

/// Bytes that are to be nowhere else, and nowhere at all when the process is not in use: a key, a password, a token.
///
///     let key = lifecycle.keep(try Secret("signing key", byteCount: 32) { bytes in readKey(into: &bytes) })
///     let signature = key.withBytes { bytes in sign(message, bytes) }     // nil once it was wiped
///     try key.refill { bytes in readKey(into: &bytes) }
///
/// They lie in pages of their own, apart from the heap, which no core dump contains, which a forked child reads as zeros, and which are not swapped out as
/// far as the limit on locked memory allows (`protection`). `lifecycle.keep(_:)` has them wiped on the way to the background.
///
/// *Copies*: what a Swift value has held stays on the heap after the value is gone. An array that grows or is written to while shared leaves its
/// old storage behind, a `String` copies itself into C strings and into `NSString`s, and text of up to 15 bytes lies in registers and on the stack. So
/// let the closure read straight into the buffer (`read`, a cipher's output, `withUnsafeMutableBytes`), hand the bytes on in place, and compare with
/// `isEqual(to:)`. Where something hands out an array all the same, `init(_:consuming:)` erases it.
///
/// *Threads*: any may use it. Whoever is inside `withBytes` sees the bytes unchanged to the end; a wipe takes effect when the last one leaves.
///
/// *Forks*: in a child every secret made before is wiped.
public final class Secret: Sendable {
    /// How reports name it; never its contents.
    public let name: String
    /// Number of its bytes.
    public let byteCount: Int
    /// Names under which it is revoked, for example of a tenant.
    public let tags: [String]
    /// Whether it survives the way to the background: for what background work itself needs. A snapshot wipes it all the same.
    public let keepsInBackground: Bool
    /// Whether the array it was made from was shared, so that its bytes are still on the heap.
    public let hasStrayCopy: Bool

    private struct State {
        var isFilled = false
        var isFilling = false
        /// To be wiped as soon as nobody is inside.
        var isCondemned = false
        var readers = 0
        var waiting: [Parker] = []
    }

    private let slot: SecretSlot
    private let state = Mutex(State())
    private let process = ForkGuard.process

    /// A secret of `byteCount` bytes that `fill` writes.
    ///
    /// - Parameters:
    ///   - name: how reports name it.
    ///   - byteCount: 0 or more bytes. Up to 4096 take the next power of two of at least 64; more take whole pages.
    ///   - tags: names under which it is revoked.
    ///   - keepsInBackground: whether it survives the way to the background.
    ///   - fill: gets `byteCount` zero bytes to write. If it throws, what it wrote is wiped.
    /// - Throws: what `fill` throws, or `SecretError` if no memory can be mapped.
    public convenience init(
        _ name: String = "secret", byteCount: Int, tags: [String] = [], keepsInBackground: Bool = false,
        fill: (inout MutableRawSpan) throws -> Void
    ) throws {
        try self.init(name, byteCount, tags, keepsInBackground, hasStrayCopy: false)
        try refill(fill)
    }

    /// A secret of the bytes of an array, which is erased and left empty.
    ///
    /// An array that others share cannot be erased: then its bytes stay on the heap, and `hasStrayCopy` says so.
    public convenience init(_ name: String = "secret", consuming bytes: inout [UInt8], tags: [String] = [], keepsInBackground: Bool = false) throws {
        let shared = bytes.withUnsafeBytes { UInt(bitPattern: $0.baseAddress) }
        let slot = try Self.slot(bytes.count, for: name)
        bytes.withUnsafeBytes { source in UnsafeMutableRawBufferPointer(start: slot.start, count: source.count).copyMemory(from: source) }
        // Writing to a shared array makes a copy first: then this is another address, and it is the copy that is erased.
        let own = bytes.withUnsafeMutableBytes { source in
            if let start = source.baseAddress { plimsoll_secret_wipe(start, source.count) }
            return UInt(bitPattern: source.baseAddress)
        }
        let count = bytes.count
        bytes = []
        self.init(name, count, tags, keepsInBackground, hasStrayCopy: own != shared, slot)
        state.withLock { $0.isFilled = true }
    }

    private convenience init(_ name: String, _ byteCount: Int, _ tags: [String], _ keeps: Bool, hasStrayCopy: Bool) throws {
        precondition(byteCount >= 0, "Secret \(name): byteCount is \(byteCount), allowed is 0 or more")
        let slot = try Self.slot(byteCount, for: name)
        self.init(name, byteCount, tags, keeps, hasStrayCopy: hasStrayCopy, slot)
    }

    private init(_ name: String, _ byteCount: Int, _ tags: [String], _ keeps: Bool, hasStrayCopy: Bool, _ slot: SecretSlot) {
        self.name = name
        self.byteCount = byteCount
        self.tags = tags
        keepsInBackground = keeps
        self.hasStrayCopy = hasStrayCopy
        self.slot = slot
    }

    private static func slot(_ byteCount: Int, for name: String) throws(SecretError) -> SecretSlot {
        guard let slot = SecretArena.shared.take(byteCount) else {
            throw SecretError("no memory can be mapped for the \(byteCount) bytes of secret \(name); is RLIMIT_AS or vm.max_map_count reached?")
        }
        return slot
    }

    deinit { SecretArena.shared.give(slot) }

    // MARK: Use

    /// What the kernel granted for its pages.
    public var protection: SecretProtection { slot.protection }

    /// Whether it has no contents: it was wiped, or this is a forked child.
    public var isWiped: Bool {
        guard ForkGuard.isProcess(process) else { return true }
        return state.withLock { !$0.isFilled || $0.isCondemned }
    }

    /// Runs `body` with the bytes; `nil`, without running it, once they were wiped. They stay until it returns.
    public func withBytes<Value, Problem: Error>(_ body: (RawSpan) throws(Problem) -> Value) throws(Problem) -> Value? {
        guard enter() else { return nil }
        defer { leave() }
        return try body(UnsafeRawBufferPointer(start: slot.start, count: byteCount).bytes)
    }

    /// Whether both have the same bytes. Takes a time that depends on nothing but their number; false if one was wiped.
    public func isEqual(to other: Secret) -> Bool { other.withBytes { isEqual(to: $0) } ?? false }

    /// Whether its bytes are those. Takes a time that depends on nothing but their number; false if it was wiped.
    public func isEqual(to bytes: RawSpan) -> Bool {
        guard bytes.byteCount == byteCount, enter() else { return false }
        defer { leave() }
        return bytes.withUnsafeBytes { other in
            byteCount == 0 || plimsoll_secret_equal(slot.start, other.baseAddress!, byteCount)
        }
    }

    private func enter() -> Bool {
        guard ForkGuard.isProcess(process) else { return false }
        return state.withLock { state in
            guard state.isFilled, !state.isCondemned else { return false }
            state.readers += 1
            return true
        }
    }

    private func leave() {
        let waiting = state.withLock { state in
            state.readers -= 1
            return state.readers == 0 && state.isCondemned ? erase(&state) : []
        }
        for parker in waiting { parker.unpark() }
    }

    // MARK: Wiping

    /// Writes zeros over it. Idempotent.
    ///
    /// - Returns: whether it is gone now. If not, somebody is inside `withBytes`: no other gets in, and it goes when the last one leaves.
    @discardableResult
    public func wipe() -> Bool { wipe(telling: nil) }

    /// - Parameter parker: whom to wake when it goes later.
    func wipe(telling parker: Parker?) -> Bool {
        guard ForkGuard.isProcess(process) else { return true }
        let (isGone, waiting) = state.withLock { state in
            guard state.readers > 0 || state.isFilling else { return (true, erase(&state)) }
            state.isCondemned = true
            if let parker { state.waiting.append(parker) }
            return (false, [])
        }
        for parker in waiting { parker.unpark() }
        return isGone
    }

    /// Under the lock, which is held over one pass through the bytes.
    private func erase(_ state: inout State) -> [Parker] {
        slot.wipe()
        (state.isFilled, state.isCondemned) = (false, false)
        defer { state.waiting = [] }
        return state.waiting
    }

    /// Has `fill` write it anew: after a wipe, or to replace it by another of the same length.
    ///
    /// - Parameter fill: gets `byteCount` zero bytes. If it throws, what it wrote is wiped.
    /// - Throws: what `fill` throws; `SecretError` if somebody uses it now, if it was wiped meanwhile, or in a forked child.
    public func refill(_ fill: (inout MutableRawSpan) throws -> Void) throws {
        guard ForkGuard.isProcess(process) else { throw SecretError("secret \(name) was made before the process forked; make another in the child") }
        try state.withLock { state in
            guard state.readers == 0, !state.isFilling else {
                throw SecretError("secret \(name) cannot be refilled while it is in use; do it after `withBytes` has returned")
            }
            slot.wipe()
            (state.isFilled, state.isFilling) = (false, true)
        }
        do {
            var bytes = UnsafeMutableRawBufferPointer(start: slot.start, count: byteCount).mutableBytes
            try fill(&bytes)
        } catch {
            endFill(isGood: false)
            throw error
        }
        guard endFill(isGood: true) else { throw SecretError("secret \(name) was wiped while it was being refilled; refill it when it is needed") }
    }

    @discardableResult
    private func endFill(isGood: Bool) -> Bool {
        let (isFilled, waiting) = state.withLock { state in
            state.isFilling = false
            guard !isGood || state.isCondemned else {
                state.isFilled = true
                return (true, [] as [Parker])
            }
            return (false, erase(&state))
        }
        for parker in waiting { parker.unpark() }
        return isFilled
    }

    /// Whether it was to be wiped and is not yet, as somebody is inside.
    var isInUse: Bool { ForkGuard.isProcess(process) && state.withLock { $0.isCondemned } }

    /// Where its bytes are. For tests.
    package var address: UnsafeRawPointer { UnsafeRawPointer(slot.start) }
}

extension Secret: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// Its name and length.
    public var description: String { "secret \(name), \(byteCount) bytes\(isWiped ? ", wiped" : "")" }
    public var debugDescription: String { description }
    public var customMirror: Mirror { Mirror(self, children: []) }
}

/// A secret that cannot be made, or cannot be used as asked.
public struct SecretError: Error, Sendable, Hashable, CustomStringConvertible {
    /// What was asked of which secret, why not, and what to do.
    public var description: String

    init(_ description: String) { self.description = description }
}
