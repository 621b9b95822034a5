import CPlimsollMemory
import CPlimsollProcess
import Plimsoll
import Synchronization

/// Bytes that must exist nowhere else, and nowhere at all while the process is not in use: a key, a password, a token.
///
///     let key = lifecycle.keep(try Secret("signing key", byteCount: 32) { bytes in readKey(into: &bytes) })
///     let signature = key.withBytes { bytes in sign(message, bytes) }     // nil once it was wiped
///     try key.refill { bytes in readKey(into: &bytes) }
///
/// The bytes are in separate pages, apart from the heap. No core dump contains these pages, and a forked child reads
/// them as zeros. They are not swapped out as far as the limit on locked memory allows (`isLocked`).
/// `lifecycle.keep(_:)` wipes the secret on the way to the background.
///
/// *Copies*: the contents of a Swift value stay on the heap after the value is gone. An array that grows, or is written
/// to while shared, leaves the old storage behind. A `String` copies the text into C strings and into `NSString`s, and
/// text of up to 15 bytes is in registers and on the stack. So let the closure read straight into the buffer (`read`, a
/// cipher's output, `withUnsafeMutableBytes`). Pass the bytes on in place, and compare with `isEqual(to:)`. For APIs
/// that return an array all the same, `init(_:consuming:)` erases the array.
///
/// *Threads*: any thread may use a secret. Code inside `withBytes` sees the bytes unchanged to the end; a wipe takes
/// effect when the last reader leaves.
///
/// *Forks*: in a child every secret made before is wiped.
public final class Secret: Sendable {
    /// The name used in reports; never the contents.
    public let name: String
    /// Number of bytes.
    public let byteCount: Int
    /// Tags by which the secret is revoked, for example the name of a tenant.
    public let tags: [String]
    /// True if the secret survives the way to the background, because background work needs the secret. A snapshot,
    /// and the end of the process, wipe the secret all the same.
    public let keepsInBackground: Bool
    /// True if the source array was shared, so that the bytes are still on the heap.
    public let hasStrayCopy: Bool

    private struct State {
        var isFilled = false
        var isFilling = false
        /// True if the secret is to be wiped when the last reader leaves.
        var isCondemned = false
        var readers = 0
        var waiting: [Parker] = []
    }

    private let slot: SecretSlot
    private let state = Mutex(State())
    private let process = ForkGuard.process

    /// Creates a secret of `byteCount` bytes that `fill` writes.
    ///
    /// - Parameters:
    ///   - name: the name used in reports.
    ///   - byteCount: 0 or more bytes. Up to 4096 take the next power of two of at least 64; more take whole pages.
    ///   - tags: tags by which the secret is revoked.
    ///   - keepsInBackground: true to keep the secret on the way to the background.
    ///   - fill: gets `byteCount` zero bytes to write. If `fill` throws, the bytes are wiped.
    /// - Throws: errors of `fill`, or `LifecycleError` if no memory can be mapped.
    public convenience init(
        _ name: String = "secret", byteCount: Int, tags: [String] = [], keepsInBackground: Bool = false,
        fill: (inout MutableRawSpan) throws -> Void
    ) throws {
        try self.init(name, byteCount, tags, keepsInBackground, hasStrayCopy: false)
        try refill(fill)
    }

    /// Creates a secret from the bytes of an array. The array is erased and left empty.
    ///
    /// A shared array cannot be erased: the bytes stay on the heap, and `hasStrayCopy` is true.
    public convenience init(
        _ name: String = "secret", consuming bytes: inout [UInt8], tags: [String] = [], keepsInBackground: Bool = false
    ) throws {
        let shared = bytes.withUnsafeBytes { UInt(bitPattern: $0.baseAddress) }
        let slot = try Self.slot(bytes.count, for: name)
        bytes.withUnsafeBytes { source in
            UnsafeMutableRawBufferPointer(start: slot.start, count: source.count).copyMemory(from: source)
        }
        // Copy-on-write: writing to a shared array makes a copy first. Then the address differs, and only the copy is
        // erased.
        let own = bytes.withUnsafeMutableBytes { source in
            if let start = source.baseAddress { plimsoll_secret_wipe(start, source.count) }
            return UInt(bitPattern: source.baseAddress)
        }
        let count = bytes.count
        bytes = []
        self.init(name, count, tags, keepsInBackground, hasStrayCopy: own != shared, slot)
        state.withLock { $0.isFilled = true }
    }

    private convenience init(_ name: String, _ byteCount: Int, _ tags: [String], _ keeps: Bool, hasStrayCopy: Bool)
        throws
    {
        precondition(byteCount >= 0, "Secret \(name): byteCount is \(byteCount), allowed is 0 or more")
        let slot = try Self.slot(byteCount, for: name)
        self.init(name, byteCount, tags, keeps, hasStrayCopy: hasStrayCopy, slot)
    }

    private init(
        _ name: String, _ byteCount: Int, _ tags: [String], _ keeps: Bool, hasStrayCopy: Bool, _ slot: SecretSlot
    ) {
        self.name = name
        self.byteCount = byteCount
        self.tags = tags
        keepsInBackground = keeps
        self.hasStrayCopy = hasStrayCopy
        self.slot = slot
    }

    private static func slot(_ byteCount: Int, for name: String) throws(LifecycleError) -> SecretSlot {
        guard let slot = SecretArena.shared.take(byteCount) else {
            throw LifecycleError(
                "cannot map \(byteCount) bytes for secret \(name); check RLIMIT_AS and vm.max_map_count"
            )
        }
        return slot
    }

    deinit { SecretArena.shared.give(slot) }

    // MARK: Use

    /// The protection that the kernel granted for the pages.
    var protection: SecretProtection { slot.protection }
    /// True if no core dump contains the bytes (`MADV_DONTDUMP`, Linux 3.4).
    public var isLeftOutOfDumps: Bool { protection.contains(.leftOutOfDumps) }
    /// True if a forked child reads zeros (`MADV_WIPEONFORK`, Linux 4.14).
    public var isZeroInChildren: Bool { protection.contains(.zeroInChildren) }
    /// True if the bytes are never written to swap (`mlock`). `RLIMIT_MEMLOCK` bounds the bytes a process may lock:
    /// 8 MiB since Linux 5.16, 64 KiB before.
    public var isLocked: Bool { protection.contains(.locked) }

    /// Allows or forbids core dumps of this process, and attaching by other processes of the same user
    /// (`PR_SET_DUMPABLE`, prctl(2)).
    ///
    /// While forbidden, the files below `/proc/self` belong to root. An unprivileged process can then no longer open
    /// those that only their owner may read, such as `environ` and `mem`. An `exec` allows dumps again.
    ///
    /// - Returns: true if the kernel accepted the setting.
    @discardableResult
    public static func setProcessDumpable(_ isDumpable: Bool) -> Bool { plimsoll_set_dumpable(isDumpable) == 0 }

    /// True if the process may be dumped now.
    public static var isProcessDumpable: Bool { plimsoll_is_dumpable() }

    /// True if the secret has no contents, after a wipe or in a forked child.
    public var isWiped: Bool {
        guard ForkGuard.isProcess(process) else { return true }
        return state.withLock { !$0.isFilled || $0.isCondemned }
    }

    /// Runs `body` with the bytes. Returns `nil`, without running `body`, once the secret was wiped. The bytes stay
    /// until `body` returns.
    public func withBytes<Value, Problem: Error>(_ body: (RawSpan) throws(Problem) -> Value) throws(Problem) -> Value? {
        guard enter() else { return nil }
        defer { leave() }
        return try body(UnsafeRawBufferPointer(start: slot.start, count: byteCount).bytes)
    }

    /// Returns true if both secrets have the same bytes; false if one was wiped. The time depends only on the number of
    /// bytes.
    public func isEqual(to other: Secret) -> Bool { other.withBytes { isEqual(to: $0) } ?? false }

    /// Returns true if the secret has these bytes; false if the secret was wiped. The time depends only on the number
    /// of bytes.
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

    /// Overwrites the bytes with zeros. Idempotent.
    ///
    /// - Returns: true if the bytes are erased now. If false, a reader is inside `withBytes`. No other reader can
    ///   enter, and the last one to leave erases the bytes.
    @discardableResult
    public func wipe() -> Bool { wipe(notifying: nil) }

    /// Wipes the secret as `wipe()` does.
    ///
    /// - Parameter parker: unparked when the bytes are erased later.
    func wipe(notifying parker: Parker?) -> Bool {
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

    /// Erases the bytes. Called under the lock, which is held for one pass over the bytes.
    private func erase(_ state: inout State) -> [Parker] {
        slot.wipe()
        (state.isFilled, state.isCondemned) = (false, false)
        return exchange(&state.waiting, [])
    }

    /// Has `fill` write the bytes anew: after a wipe, or to replace the secret by another of the same length.
    ///
    /// - Parameter fill: gets `byteCount` zero bytes. If `fill` throws, the bytes are wiped.
    /// - Throws: errors of `fill`; `LifecycleError` if the secret is in use, was wiped meanwhile, or was made before a
    ///   fork.
    public func refill(_ fill: (inout MutableRawSpan) throws -> Void) throws {
        guard ForkGuard.isProcess(process) else {
            throw LifecycleError(
                "cannot use secret \(name) because it was made before the process forked; make another in the child")
        }
        try state.withLock { state in
            guard state.readers == 0, !state.isFilling else {
                throw LifecycleError(
                    "cannot refill secret \(name) because it is in use; refill it after `withBytes` has returned")
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
        guard endFill(isGood: true) else {
            throw LifecycleError(
                "cannot refill secret \(name) because it was wiped meanwhile; refill it when it is needed")
        }
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

    /// True if a wipe was requested but waits for a reader to leave.
    var isInUse: Bool { ForkGuard.isProcess(process) && state.withLock { $0.isCondemned } }

    /// True unless the bytes are erased; also true while a wipe waits for a reader, and during a refill.
    fileprivate var mayHoldBytes: Bool {
        ForkGuard.isProcess(process) && state.withLock { $0.isFilled || $0.isFilling }
    }

    /// The address of the bytes. For tests.
    package var address: UnsafeRawPointer { UnsafeRawPointer(slot.start) }
}

extension Secret: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// The name and the length.
    public var description: String { "secret \(name), \(byteCount) bytes\(isWiped ? ", wiped" : "")" }
    public var debugDescription: String { description }
    public var customMirror: Mirror { Mirror(self, children: []) }
}

/// Weak references to the registered secrets.
final class SecretRegistry: Sendable {
    private struct Kept {
        weak var secret: Secret?
    }

    private struct State {
        var secrets: [Kept] = []
        /// The count at which dead references are removed.
        var sweepAt = 64
    }

    private let state = Mutex(State())

    /// Registers `secret`.
    ///
    /// - Complexity: O(1), amortized.
    func add(_ secret: Secret) {
        state.withLock { state in
            state.secrets.append(Kept(secret: secret))
            guard state.secrets.count >= state.sweepAt else { return }
            state.secrets.removeAll { $0.secret == nil }
            state.sweepAt = max(64, 2 * state.secrets.count)
        }
    }

    var all: [Secret] { state.withLock { $0.secrets.compactMap(\.secret) } }

    /// Wipes the secrets that match, with those for which an earlier wipe still waits.
    ///
    /// - Parameter parker: unparked for each secret that is erased later.
    /// - Returns: the secrets that had contents, and those of them still in use.
    func wipe(notifying parker: Parker? = nil, where matches: (Secret) -> Bool) -> (wiped: [Secret], inUse: [Secret]) {
        let full = all.filter { $0.mayHoldBytes && matches($0) }
        let inUse = full.filter { !$0.wipe(notifying: parker) }
        return (full, inUse)
    }
}
