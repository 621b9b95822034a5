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

    /// Parses `"512"`, `"512M"`, `"512MiB"`, `"1.5 G"`; units are powers of 1024, in either case. Returns `nil` for
    /// anything else, negative numbers included.
    public init?(_ text: String) {
        let compact = text.filter { $0 != " " }
        let number = compact.prefix { $0.isNumber || $0 == "." }
        let unit = compact.dropFirst(number.count).lowercased()
        guard let value = Double(number), value.isFinite else { return nil }
        let shifts = ["": 0, "b": 0, "k": 10, "kib": 10, "m": 20, "mib": 20, "g": 30, "gib": 30, "t": 40, "tib": 40]
        guard let shift = shifts[unit] else { return nil }
        let bytes = value * Double(1 << shift)
        guard bytes < Double(Int.max) else { return nil }
        self.bytes = Int(bytes)
    }
}
