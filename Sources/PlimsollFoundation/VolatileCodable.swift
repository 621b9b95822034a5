import Foundation
public import Plimsoll

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
