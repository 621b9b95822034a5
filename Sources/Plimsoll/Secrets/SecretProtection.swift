import CPlimsollMemory

/// How the memory of a secret is kept from others, as far as the kernel granted it.
public struct SecretProtection: OptionSet, Sendable, Hashable {
    public let rawValue: UInt8

    /// From its bits.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// No core dump contains it (`MADV_DONTDUMP`, Linux 3.4).
    public static let leftOutOfDumps = SecretProtection(rawValue: UInt8(PLIMSOLL_SECRET_NOT_DUMPED))
    /// A forked child reads zeros (`MADV_WIPEONFORK`, Linux 4.14).
    public static let zeroInChildren = SecretProtection(rawValue: UInt8(PLIMSOLL_SECRET_ZERO_IN_CHILDREN))
    /// It is never written to swap (`mlock`). `RLIMIT_MEMLOCK` bounds how much a process may lock: 8 MiB since Linux 5.16, 64 KiB before.
    public static let locked = SecretProtection(rawValue: UInt8(PLIMSOLL_SECRET_LOCKED))

    private static let names: [(SecretProtection, String)] = [
        (.leftOutOfDumps, "left out of core dumps"), (.zeroInChildren, "zero in forked children"), (.locked, "locked"),
    ]
}

extension SecretProtection: CustomStringConvertible {
    /// What is granted, comma separated; `"none"` for nothing.
    public var description: String { isEmpty ? "none" : Self.names.filter { contains($0.0) }.map(\.1).joined(separator: ", ") }
}
