/// A value that can be kept as bytes, and so in memory that the kernel may take.
///
/// `[UInt8]`, `String`, the integers and the floating-point numbers conform. Any `BitwiseCopyable` type conforms by
/// declaring the conformance. Other types encode and decode themselves:
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
/// A value that cannot be encoded is not kept. A value that cannot be decoded counts as missing and is removed.
public protocol VolatileStorable: Sendable {
    /// Writes the value. The bytes written count, even if `encodedByteCount` was another number.
    func encode(into encoder: inout VolatileEncoder) throws

    /// Reads a value back. `bytes` are all the bytes that were written, intact.
    init(decoding bytes: RawSpan) throws

    /// Estimated number of bytes that `encode` will write, reserved at once. The default is zero, for "not known".
    var encodedByteCount: Int { get }

    /// Calls `body` with the bytes to keep. The default calls `encode`. Types that lie in memory as bytes can avoid
    /// that copy.
    func withEncodedBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) throws -> R

    /// Makes a value of `byteCount` bytes that `fill` writes; `fill` returns false if the bytes are not good. The
    /// default calls `init(decoding:)`. Types that lie in memory as bytes can avoid that copy.
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

/// Collects the bytes that a value writes.
public struct VolatileEncoder: Sendable {
    /// The bytes written so far.
    public private(set) var bytes: [UInt8] = []

    /// - Parameter capacity: bytes to reserve; a hint, not a bound.
    public init(capacity: Int = 0) {
        // The hint may be wrong: reserve at most 1 MiB in advance.
        bytes.reserveCapacity(min(max(0, capacity), 1 << 20))
    }

    /// Writes the in-memory bytes of a value: a number, or a structure of numbers.
    public mutating func append<T: BitwiseCopyable>(_ value: T) {
        withUnsafeBytes(of: value) { bytes.append(contentsOf: $0) }
    }

    /// Writes the text as UTF-8, without a length.
    public mutating func append(_ text: String) { bytes.append(contentsOf: text.utf8) }

    /// Writes bytes.
    public mutating func append(contentsOf other: some Sequence<UInt8>) { bytes.append(contentsOf: other) }

    /// Writes bytes.
    public mutating func append(_ span: RawSpan) { span.withUnsafeBytes { bytes.append(contentsOf: $0) } }
}

/// An error for bytes that encode no value.
public struct VolatileDecodingError: Error, Sendable, Hashable, CustomStringConvertible {
    /// Description of the type, the bytes found, and the reason for the failure.
    public var description: String

    /// Creates an error with that description.
    public init(_ description: String) { self.description = description }
}
