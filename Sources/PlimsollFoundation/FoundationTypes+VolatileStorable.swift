public import Foundation
public import Plimsoll

extension Data: VolatileStorable {
    public func encode(into encoder: inout VolatileEncoder) { encoder.append(contentsOf: self) }
    public init(decoding bytes: RawSpan) { self = bytes.withUnsafeBytes { Data($0) } }
    public var encodedByteCount: Int { count }

    public func withEncodedBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) throws -> R {
        try withUnsafeBytes(body)
    }

    public static func decoded(byteCount: Int, fill: (UnsafeMutableRawBufferPointer) -> Bool) -> Data? {
        var data = Data(count: byteCount)
        return data.withUnsafeMutableBytes(fill) ? data : nil
    }
}

extension UUID: VolatileStorable {
    public func encode(into encoder: inout VolatileEncoder) {
        withUnsafeBytes(of: uuid) { encoder.append(contentsOf: $0) }
    }

    public init(decoding bytes: RawSpan) throws {
        guard bytes.byteCount == 16 else { throw VolatileDecodingError("UUID has 16 bytes, not \(bytes.byteCount)") }
        self.init(uuid: bytes.unsafeLoadUnaligned(as: uuid_t.self))
    }

    public var encodedByteCount: Int { 16 }

    public func withEncodedBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) throws -> R {
        try withUnsafeBytes(of: uuid) { try body($0) }
    }
}

/// A `Codable` value that is stored as JSON; `struct Session: VolatileCodable { … }` is all that is needed.
///
/// Coding takes microseconds, while raw bytes take nanoseconds. For values that are looked up often, write
/// `encode(into:)` and `init(decoding:)` by hand.
public protocol VolatileCodable: Codable, VolatileStorable {}

extension VolatileCodable {
    public func encode(into encoder: inout VolatileEncoder) throws {
        encoder.append(contentsOf: try JSONEncoder().encode(self))
    }

    public init(decoding bytes: RawSpan) throws {
        self = try JSONDecoder().decode(Self.self, from: bytes.withUnsafeBytes { Data($0) })
    }
}
