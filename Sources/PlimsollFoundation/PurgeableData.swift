public import Foundation
public import Plimsoll

/// Bytes that the kernel itself may take while nobody accesses them: `NSPurgeableData`, which Foundation lacks on Linux.
///
/// ```swift
/// let image = PurgeableData(data: decoded)        // accessed, as NSPurgeableData is when it is made
/// image.endContentAccess()                        // from here on the kernel's to take
/// if image.beginContentAccess() {                 // false: it was taken, make another
///     defer { image.endContentAccess() }
///     image.withBytes { bytes in draw(bytes) }
/// }
/// ```
///
/// The pages are a `PurgeableBuffer`'s: offered to the kernel by `MADV_FREE` when the last access ends, taken by it inside the page fault of whoever needs memory,
/// before it swaps and before it kills. They are there whole or not at all. Worth it from 64 KiB on: each has pages of its own. To have a manager count it
/// and ask it under pressure, register its `buffer`.
///
/// *Threads*: any may begin and end accesses. Whoever writes while others access the bytes needs a lock of its own.
public final class PurgeableData: DiscardableContent {
    /// Where the bytes lie; what a manager registers.
    public let buffer: PurgeableBuffer

    /// Number of bytes, for good.
    public var length: Int { buffer.byteCount }

    /// A number of zeros, accessed: it cannot be taken until `endContentAccess()`.
    ///
    /// If no memory can be mapped its content is discarded from the start.
    ///
    /// - Parameters:
    ///   - length: number of bytes, 0 or more.
    ///   - name: how reports name it.
    ///   - rebuildCost: what it costs to make the bytes again.
    public init(length: Int, name: String = "PurgeableData", rebuildCost: RebuildCost = .cheap) {
        buffer = PurgeableBuffer(name, byteCount: length, rebuildCost: rebuildCost)
        _ = buffer.beginAccess()
    }

    /// A copy of `data`, accessed: it cannot be taken until `endContentAccess()`.
    ///
    /// - Complexity: O(bytes).
    public convenience init(data: Data, name: String = "PurgeableData", rebuildCost: RebuildCost = .cheap) {
        self.init(length: data.count, name: name, rebuildCost: rebuildCost)
        _ = buffer.withAccess { bytes in bytes.withUnsafeMutableBytes { _ = data.copyBytes(to: $0) } }
    }

    // MARK: Access

    /// Keeps the content from being taken until `endContentAccess()`. Accesses nest.
    ///
    /// - Returns: whether the content is there. If not it is gone for good, and there is nothing to end.
    /// - Complexity: O(pages) for the first access, O(1) for one within another.
    public func beginContentAccess() -> Bool { buffer.beginAccess() }

    /// Ends an access that has begun, the one it was made with included. With the last one the content is the kernel's to take.
    ///
    /// Ending more than have begun stops the process while there is content.
    public func endContentAccess() { buffer.endAccess() }

    /// Gives the memory back, unless somebody has access.
    public func discardContentIfPossible() { _ = buffer.release(.max) }

    /// Whether the content is gone: discarded, or taken by the kernel.
    ///
    /// That it says no is no promise: only an access keeps the kernel off.
    ///
    /// - Complexity: O(pages) between accesses: a word of each is read. Constant otherwise.
    public func isContentDiscarded() -> Bool {
        buffer.lookForDrops()
        return buffer.isDiscarded
    }

    // MARK: Bytes

    /// Runs `body` with the bytes, in place and writable, under an access of its own; `nil`, without running it, if they are gone.
    public func withBytes<Value, Problem: Error>(_ body: (inout MutableRawSpan) throws(Problem) -> Value) throws(Problem) -> Value? {
        try buffer.withAccess(body)
    }

    /// Runs `body` with the bytes as `Data`, in place and not copied, under an access of its own; `nil`, without running it, if they are gone.
    ///
    /// The access lasts as long as any part of that `Data` does, so it may be kept, and keeps the kernel off meanwhile.
    public func withData<Value, Problem: Error>(_ body: (Data) throws(Problem) -> Value) throws(Problem) -> Value? {
        guard buffer.beginAccess(), let address = buffer.address else { return nil }
        // Few bytes Foundation copies, and ends the access at once.
        let data = Data(bytesNoCopy: address, count: length, deallocator: .custom { [buffer] _, _ in buffer.endAccess() })
        defer { withExtendedLifetime(data) {} }
        return try body(data)
    }

    /// A copy of the bytes; `nil` if they are gone.
    ///
    /// - Complexity: O(bytes).
    public var data: Data? { withBytes { bytes in bytes.withUnsafeBytes { Data($0) } } }
}
