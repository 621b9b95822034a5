import CPlimsollMemory
/// The protection of a secret's memory, as far as the kernel granted it.
public struct SecretProtection: OptionSet, Sendable, Hashable {
    public let rawValue: UInt8

    /// Creates a set from raw bits.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// No core dump contains the memory (`MADV_DONTDUMP`, Linux 3.4).
    public static let leftOutOfDumps = SecretProtection(rawValue: UInt8(PLIMSOLL_SECRET_NOT_DUMPED))
    /// A forked child reads zeros (`MADV_WIPEONFORK`, Linux 4.14).
    public static let zeroInChildren = SecretProtection(rawValue: UInt8(PLIMSOLL_SECRET_ZERO_IN_CHILDREN))
    /// The memory is never written to swap (`mlock`). `RLIMIT_MEMLOCK` bounds the bytes a process may lock: 8 MiB since
    /// Linux 5.16, 64 KiB before.
    public static let locked = SecretProtection(rawValue: UInt8(PLIMSOLL_SECRET_LOCKED))

    private static let names: [(SecretProtection, String)] = [
        (.leftOutOfDumps, "left out of core dumps"), (.zeroInChildren, "zero in forked children"), (.locked, "locked"),
    ]
}

extension SecretProtection: CustomStringConvertible {
    /// The granted protections, comma separated; `"none"` for the empty set.
    public var description: String {
        isEmpty ? "none" : Self.names.filter { contains($0.0) }.map(\.1).joined(separator: ", ")
    }
}
