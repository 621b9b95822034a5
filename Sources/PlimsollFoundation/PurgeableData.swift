public import Foundation
public import Plimsoll

/// Bytes that the kernel may reclaim while no access is in progress: `NSPurgeableData`, which Foundation lacks on
/// Linux.
///
/// ```swift
/// let image = PurgeableData(data: decoded)        // an access has begun, as with NSPurgeableData
/// image.endContentAccess()                        // from here on the kernel may reclaim the bytes
/// if image.beginContentAccess() {                 // false: reclaimed, make another
///     defer { image.endContentAccess() }
///     image.withBytes { bytes in draw(bytes) }
/// }
/// ```
///
/// The pages belong to a `PurgeableBuffer`, which offers them to the kernel with `MADV_FREE` when the last access
/// ends. The kernel reclaims them in the page fault of a process that needs memory, before swapping and before
/// killing. The bytes are present as a whole or not at all. Worthwhile from 64 KiB on, since each object has pages of
/// its own. To count and release the bytes under pressure, register `buffer` with a manager.
///
/// *Threads*: accesses may begin and end on any thread. Code that writes while other threads access the bytes needs a
/// lock of its own.
public final class PurgeableData: DiscardableContent {
    /// The buffer with the bytes, to be registered with a manager.
    public let buffer: PurgeableBuffer

    /// Number of bytes; constant.
    public var length: Int { buffer.byteCount }

    /// Creates zeroed bytes with an access begun: they cannot be reclaimed until `endContentAccess()`.
    ///
    /// If no memory can be mapped, the content is discarded from the start.
    ///
    /// - Parameters:
    ///   - length: number of bytes, 0 or more.
    ///   - name: name in reports.
    ///   - rebuildCost: cost of making the bytes again.
    public init(length: Int, name: String = "PurgeableData", rebuildCost: RebuildCost = .cheap) {
        buffer = PurgeableBuffer(name, byteCount: length, rebuildCost: rebuildCost)
        _ = buffer.beginAccess()
    }

    /// Creates a copy of `data` with an access begun: the bytes cannot be reclaimed until `endContentAccess()`.
    ///
    /// - Complexity: O(bytes).
    public convenience init(data: Data, name: String = "PurgeableData", rebuildCost: RebuildCost = .cheap) {
        self.init(length: data.count, name: name, rebuildCost: rebuildCost)
        _ = buffer.withAccess { bytes in bytes.withUnsafeMutableBytes { _ = data.copyBytes(to: $0) } }
    }

    // MARK: Access

    /// Protects the content from reclaim until `endContentAccess()`. Accesses nest.
    ///
    /// - Returns: true if the content is there. If false, the content is gone for good, and there is no access to
    ///   end.
    /// - Complexity: O(pages) for the first access, O(1) for a nested access.
    public func beginContentAccess() -> Bool { buffer.beginAccess() }

    /// Ends an access, including the one that the initialiser began. After the last access the kernel may reclaim the
    /// content.
    ///
    /// Ending more accesses than have begun stops the process while there is content.
    public func endContentAccess() { buffer.endAccess() }

    /// Releases the memory, unless an access is in progress.
    public func discardContentIfPossible() { _ = buffer.release(.max) }

    /// Returns true if the content is gone: discarded, or reclaimed by the kernel.
    ///
    /// A result of false is no promise: only an access prevents reclaim.
    ///
    /// - Complexity: O(pages) between accesses, as a word of each page is read. O(1) otherwise.
    public func isContentDiscarded() -> Bool {
        buffer.checkForDrops()
        return buffer.isDiscarded
    }

    // MARK: Bytes

    /// Runs `body` with the bytes, in place and writable, within an access. Returns `nil` without running `body` if
    /// the bytes are gone.
    public func withBytes<Value, Problem: Error>(_ body: (inout MutableRawSpan) throws(Problem) -> Value)
        throws(Problem) -> Value?
    {
        try buffer.withAccess(body)
    }

    /// Runs `body` with the bytes as `Data`, in place and not copied, within an access. Returns `nil` without running
    /// `body` if the bytes are gone.
    ///
    /// The access lasts as long as any part of that `Data`. The `Data` may therefore be kept, and prevents reclaim
    /// meanwhile.
    public func withData<Value, Problem: Error>(_ body: (Data) throws(Problem) -> Value) throws(Problem) -> Value? {
        guard buffer.beginAccess(), let address = buffer.address else { return nil }
        // Foundation copies small amounts, and ends the access at once.
        let data = Data(
            bytesNoCopy: address, count: length, deallocator: .custom { [buffer] _, _ in buffer.endAccess() })
        defer { withExtendedLifetime(data) {} }
        return try body(data)
    }

    /// A copy of the bytes; `nil` if they are gone.
    ///
    /// - Complexity: O(bytes).
    public var data: Data? { withBytes { bytes in bytes.withUnsafeBytes { Data($0) } } }
}

/// An object whose content can be discarded: `NSDiscardableContent`, which Foundation lacks on Linux.
///
/// `PurgeableData` conforms. Conform your own classes that can drop their content and report the loss, such as a
/// decoded image whose file is kept.
public protocol DiscardableContent: AnyObject, Sendable {
    /// Keeps the content until `endContentAccess()`. Accesses nest.
    ///
    /// - Returns: true if the content is there. If false, there is no access to end.
    func beginContentAccess() -> Bool

    /// Ends an access that has begun.
    func endContentAccess()

    /// Discards the content unless an access is in progress.
    func discardContentIfPossible()

    /// Returns true if the content is gone.
    func isContentDiscarded() -> Bool
}
