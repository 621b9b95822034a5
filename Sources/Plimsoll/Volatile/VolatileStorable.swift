/// A value that can be kept as bytes, and so in memory that the kernel may take.
///
/// `[UInt8]`, `String`, the integers and floating-point numbers conform, and any `BitwiseCopyable` type by saying so. Others write themselves
/// down and read themselves back:
///
/// ```swift
/// struct Row: VolatileStorable {
///     var id: UInt64
///     var name: String
///     func encode(into encoder: inout VolatileEncoder) {
///         encoder.append(id)
///         encoder.append(name)
///     }
///     init(decoding bytes: RawSpan) throws {
///         guard bytes.byteCount >= 8 else { throw RowError.tooShort }
///         id = bytes.unsafeLoadUnaligned(as: UInt64.self)
///         name = try String(decoding: bytes.extracting(8...))
///     }
/// }
/// ```
///
/// A value that cannot be encoded is not kept; one that cannot be decoded counts as missing and is taken out.
public protocol VolatileStorable: Sendable {
    /// Writes the value down. What is written is what counts, however much `encodedByteCount` promised.
    func encode(into encoder: inout VolatileEncoder) throws

    /// Reads a value back. `bytes` are all that was written, and good.
    init(decoding bytes: RawSpan) throws

    /// About how many bytes `encode` will write: room is made for them at once. Zero, if not implemented, for "not known".
    var encodedByteCount: Int { get }

    /// Calls `body` with the bytes to keep. By default what `encode` writes; types that lie in memory as bytes spare themselves the copy.
    func withEncodedBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) throws -> R

    /// Makes a value of `byteCount` bytes that `fill` writes; `fill` tells whether they are good. By default `init(decoding:)`; types that lie in
    /// memory as bytes spare themselves the copy.
    ///
    /// - Returns: `nil` if the bytes were not good.
    static func decoded(byteCount: Int, fill: (UnsafeMutableRawBufferPointer) -> Bool) throws -> Self?
}

extension VolatileStorable {
    @inlinable public var encodedByteCount: Int { 0 }

    @inlinable
    public func withEncodedBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) throws -> R {
        var encoder = VolatileEncoder(capacity: encodedByteCount)
        try encode(into: &encoder)
        return try encoder.bytes.withUnsafeBytes(body)
    }

    @inlinable
    public static func decoded(byteCount: Int, fill: (UnsafeMutableRawBufferPointer) -> Bool) throws -> Self? {
        try withUnsafeTemporaryAllocation(byteCount: byteCount, alignment: 16) { buffer in
            guard fill(buffer) else { return nil }
            return try Self(decoding: UnsafeRawBufferPointer(buffer).bytes)
        }
    }
}

/// Takes down what a value writes.
public struct VolatileEncoder: Sendable {
    /// What has been written.
    public private(set) var bytes: [UInt8] = []

    /// - Parameter capacity: bytes to make room for; a promise nobody is held to.
    public init(capacity: Int = 0) {
        // A promise of gigabytes is believed when they come.
        bytes.reserveCapacity(min(max(0, capacity), 1 << 20))
    }

    /// Writes a fixed number of bytes as they lie in memory: numbers, and structures of them.
    public mutating func append<T: BitwiseCopyable>(_ value: T) {
        withUnsafeBytes(of: value) { bytes.append(contentsOf: $0) }
    }

    /// Writes the text as UTF-8, without its length.
    public mutating func append(_ text: String) { bytes.append(contentsOf: text.utf8) }

    /// Writes bytes.
    public mutating func append(contentsOf other: some Sequence<UInt8>) { bytes.append(contentsOf: other) }

    /// Writes bytes.
    public mutating func append(_ span: RawSpan) { span.withUnsafeBytes { bytes.append(contentsOf: $0) } }
}

/// Bytes that are no value.
public struct VolatileDecodingError: Error, Sendable, Hashable, CustomStringConvertible {
    /// What was asked, of what, and why not.
    public var description: String

    /// An error that says so.
    public init(_ description: String) { self.description = description }
}
