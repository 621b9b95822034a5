/// A number of bytes of memory.
///
/// Arithmetic saturates at the ends of `Int` instead of trapping: an invalid number from outside must not stop a
/// service.
public struct ByteCount: Sendable, Hashable, Codable {
    /// The number of bytes.
    public var bytes: Int

    /// Creates a number of bytes.
    @inlinable
    public init(_ bytes: Int) { self.bytes = bytes }

    /// Returns `count` bytes.
    @inlinable
    public static func bytes(_ count: Int) -> ByteCount { ByteCount(count) }
    /// Returns `count` times 1024 bytes.
    public static func kibibytes(_ count: Int) -> ByteCount { scaled(count, by: 10) }
    /// Returns `count` times 1024² bytes.
    public static func mebibytes(_ count: Int) -> ByteCount { scaled(count, by: 20) }
    /// Returns `count` times 1024³ bytes.
    public static func gibibytes(_ count: Int) -> ByteCount { scaled(count, by: 30) }

    /// No bytes.
    public static let zero = ByteCount(0)
    /// More bytes than any machine has: stands for "no limit" where a number is needed.
    public static let max = ByteCount(Int.max)

    private static func scaled(_ count: Int, by shift: Int) -> ByteCount {
        let (product, overflow) = count.multipliedReportingOverflow(by: 1 << shift)
        return ByteCount(overflow ? (count < 0 ? Int.min : Int.max) : product)
    }
}

extension ByteCount: Comparable, AdditiveArithmetic, ExpressibleByIntegerLiteral {
    @inlinable
    public init(integerLiteral value: Int) { bytes = value }

    @inlinable
    public static func < (left: ByteCount, right: ByteCount) -> Bool { left.bytes < right.bytes }

    public static func + (left: ByteCount, right: ByteCount) -> ByteCount {
        let (sum, overflow) = left.bytes.addingReportingOverflow(right.bytes)
        return ByteCount(overflow ? (right.bytes < 0 ? Int.min : Int.max) : sum)
    }

    public static func - (left: ByteCount, right: ByteCount) -> ByteCount {
        let (difference, overflow) = left.bytes.subtractingReportingOverflow(right.bytes)
        return ByteCount(overflow ? (right.bytes < 0 ? Int.max : Int.min) : difference)
    }

    /// Returns the number times `factor`, rounded towards zero, saturating.
    public static func * (left: ByteCount, factor: Double) -> ByteCount {
        let product = Double(left.bytes) * factor
        guard product.isFinite else { return product == -.infinity ? ByteCount(Int.min) : .max }
        if product >= Double(Int.max) { return .max }
        if product <= Double(Int.min) { return ByteCount(Int.min) }
        return ByteCount(Int(product))
    }
}

extension ByteCount: CustomStringConvertible, LosslessStringConvertible {
    /// The number in the largest binary unit that leaves at least one, with one decimal below ten: `"512 B"`, `"1.5
    /// MiB"`, `"23 GiB"`.
    public var description: String {
        let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
        var magnitude = Double(bytes.magnitude)
        var unit = 0
        while magnitude >= 1024, unit < units.count - 1 {
            magnitude /= 1024
            unit += 1
        }
        let sign = bytes < 0 ? "-" : ""
        let tenths = Int((magnitude * 10).rounded())
        let number =
            unit == 0 || tenths >= 100 || tenths % 10 == 0
            ? "\(Int(magnitude.rounded()))" : "\(tenths / 10).\(tenths % 10)"
        return "\(sign)\(number) \(units[unit])"
    }

    /// Parses `"512"`, `"512M"`, `"512MiB"`, `"1.5 G"`, `"512MB"`, in either case. Returns `nil` for anything else,
    /// negative numbers included.
    ///
    /// `M` and `MiB` are 1024² bytes, as in systemd and GNU's tools; `MB` is 1000² bytes. Kubernetes reads `512M` as
    /// 512 * 1000² bytes and `512Mi` as 512 * 1024².
    public init?(_ text: String) {
        let rest = text.drop { $0 == " " }
        let number = rest.prefix { $0.isNumber || $0 == "." }
        var unit = rest.dropFirst(number.count).drop { $0 == " " }.lowercased()
        while unit.last == " " { unit.removeLast() }
        guard let value = Double(number), value.isFinite else { return nil }
        let units: [String: Double] = [
            "": 1, "b": 1, "k": 0x1p10, "kib": 0x1p10, "ki": 0x1p10, "kb": 1e3, "m": 0x1p20, "mib": 0x1p20,
            "mi": 0x1p20, "mb": 1e6, "g": 0x1p30, "gib": 0x1p30, "gi": 0x1p30, "gb": 1e9, "t": 0x1p40,
            "tib": 0x1p40, "ti": 0x1p40, "tb": 1e12,
        ]
        guard let factor = units[unit] else { return nil }
        let bytes = value * factor
        guard bytes < Double(Int.max) else { return nil }
        self.bytes = Int(bytes)
    }
}
