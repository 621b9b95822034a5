public import Foundation
public import Plimsoll

extension Data: VolatileStorable {
    public func encode(into encoder: inout VolatileEncoder) { encoder.append(contentsOf: self) }
    public init(decoding bytes: RawSpan) { self = bytes.withUnsafeBytes { Data($0) } }
    public var encodedByteCount: Int { count }

    public func withEncodedBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) throws -> R { try withUnsafeBytes(body) }

    public static func decoded(byteCount: Int, fill: (UnsafeMutableRawBufferPointer) -> Bool) -> Data? {
        var data = Data(count: byteCount)
        return data.withUnsafeMutableBytes(fill) ? data : nil
    }
}
