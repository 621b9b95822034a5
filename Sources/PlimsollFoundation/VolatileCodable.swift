import Foundation
public import Plimsoll

/// A `Codable` value that is kept as JSON: `struct Session: VolatileCodable { … }` is all that is needed.
///
/// Coding costs microseconds, where bytes kept as they are cost nanoseconds; for what is looked up often write `encode(into:)` and
/// `init(decoding:)` by hand.
public protocol VolatileCodable: Codable, VolatileStorable {}

extension VolatileCodable {
    public func encode(into encoder: inout VolatileEncoder) throws { encoder.append(contentsOf: try JSONEncoder().encode(self)) }

    public init(decoding bytes: RawSpan) throws {
        self = try JSONDecoder().decode(Self.self, from: bytes.withUnsafeBytes { Data($0) })
    }
}
