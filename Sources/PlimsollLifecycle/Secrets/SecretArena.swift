import CPlimsollMemory
import CPlimsollProcess
package import Plimsoll
import Synchronization

/// A block of memory for one secret.
// Unchecked: an address is shared like any number. The secret that owns the block guards the bytes there.
struct SecretSlot: @unchecked Sendable {
    let start: UnsafeMutableRawPointer
    /// Number of bytes in the block.
    let capacity: Int
    let protection: SecretProtection
    /// The slab of this block; `nil` for a separate mapping.
    fileprivate let slab: UInt?

    func wipe() { plimsoll_secret_wipe(start, capacity) }
}

/// Allocates memory for secrets in separate pages, away from the heap. Small secrets of about one size share pages.
///
/// Free memory is zero. A slab has 32 KiB, at least a page, in slots of one size from 64 to 4096 bytes, between two inaccessible guard
/// pages. Larger secrets get a mapping each.
final class SecretArena: Sendable {
    static let shared = SecretArena()

    fileprivate struct Slab {
        var free: [UInt16]
        let protection: SecretProtection
    }

    /// The slabs of one slot size.
    fileprivate struct SizeClass {
        var slabs: [UInt: Slab] = [:]
        /// Slabs with a free slot.
        var open: Set<UInt> = []
    }

    private static let smallest = 64
    private static let largest = 4096
    private static let leastSlab = 32 << 10

    private let classes = Mutex([SizeClass](repeating: SizeClass(), count: 7))
    /// In a forked child the lock may be held by a thread that does not exist there.
    private let process = ForkGuard.process

    /// Returns the size of a slab, in whole pages.
    fileprivate static func slabBytes() -> Int { max(leastSlab, plimsoll_page_size()) }

    /// Allocates a block for `byteCount` bytes, all zero; returns `nil` if no memory can be mapped.
    ///
    /// - Complexity: O(1); every 8th to 512th call maps a slab.
    func take(_ byteCount: Int) -> SecretSlot? {
        guard byteCount <= Self.largest, ForkGuard.isProcess(process) else { return map(byteCount) }
        var size = Self.smallest, number = 0
        while size < byteCount { (size, number) = (size * 2, number + 1) }
        return classes.withLock { classes in classes[number].take(size) }
    }

    /// Erases the block and frees it.
    func give(_ slot: SecretSlot) {
        guard let slab = slot.slab else {
            plimsoll_secret_unmap(slot.start, slot.capacity)
            return
        }
        slot.wipe()
        let number = (slot.capacity / Self.smallest).trailingZeroBitCount
        guard ForkGuard.isProcess(process) else { return }
        classes.withLock { classes in classes[number].give(slot, slab) }
    }

    private func map(_ byteCount: Int) -> SecretSlot? {
        let page = plimsoll_page_size()
        guard byteCount <= Int.max - 4 * page else { return nil }
        let bytes = (max(1, byteCount) + page - 1) / page * page
        guard let (start, protection) = Self.map(pages: bytes) else { return nil }
        return SecretSlot(start: start, capacity: bytes, protection: protection, slab: nil)
    }

    fileprivate static func map(pages bytes: Int) -> (UnsafeMutableRawPointer, SecretProtection)? {
        var start: UnsafeMutableRawPointer?
        var granted: UInt32 = 0
        guard plimsoll_secret_map(bytes, &start, &granted) == 0, let start else { return nil }
        return (start, SecretProtection(rawValue: UInt8(granted)))
    }

    /// Number of bytes mapped in slabs.
    var slabBytes: Int { classes.withLock { $0.reduce(0) { $0 + $1.slabs.count * Self.slabBytes() } } }
}

extension SecretArena.SizeClass {
    fileprivate mutating func take(_ size: Int) -> SecretSlot? {
        let bytes = SecretArena.slabBytes()
        if open.isEmpty {
            guard let (start, protection) = SecretArena.map(pages: bytes) else { return nil }
            let base = UInt(bitPattern: start)
            slabs[base] = SecretArena.Slab(free: (0..<UInt16(bytes / size)).reversed(), protection: protection)
            open.insert(base)
        }
        guard let base = open.first, let number = slabs[base]?.free.popLast(),
            let start = UnsafeMutableRawPointer(bitPattern: base)
        else {
            return nil
        }
        if slabs[base]?.free.isEmpty ?? true { open.remove(base) }
        return SecretSlot(
            start: start + Int(number) * size, capacity: size, protection: slabs[base]?.protection ?? [], slab: base)
    }

    /// Frees a slot. An empty slab is unmapped unless no other slab has a free slot. So a secret that comes and goes
    /// does not map a slab each time.
    fileprivate mutating func give(_ slot: SecretSlot, _ base: UInt) {
        let bytes = SecretArena.slabBytes()
        slabs[base]?.free.append(UInt16((UInt(bitPattern: slot.start) - base) / UInt(slot.capacity)))
        open.insert(base)
        guard slabs[base]?.free.count == bytes / slot.capacity, open.count > 1,
            let start = UnsafeMutableRawPointer(bitPattern: base)
        else { return }
        slabs[base] = nil
        open.remove(base)
        plimsoll_secret_unmap(start, bytes)
    }
}

/// Protection of this process against inspection by other processes.
package enum ProcessPrivacy {
    /// The line `secrets` of the capabilities. Probed by allocating a secret.
    package static var signal: Capabilities.Signal {
        let dumps =
            Secret.isProcessDumpable ? "the rest of the process may be dumped" : "the process writes no core dump"
        guard let slot = SecretArena.shared.take(1) else {
            return .init(
                "secrets", isLive: false, "cannot map a page for secrets",
                remedy: "raise RLIMIT_AS or vm.max_map_count")
        }
        defer { SecretArena.shared.give(slot) }
        let isWhole = slot.protection.isSuperset(of: [.leftOutOfDumps, .zeroInChildren])
        return .init(
            "secrets", isLive: isWhole, "\(slot.protection); \(dumps)",
            remedy: isWhole
                ? (slot.protection.contains(.locked)
                    ? nil : "raise RLIMIT_MEMLOCK so that secrets are never swapped out")
                : "run on Linux 4.14 or newer"
        )
    }
}

/// The protection of a secret's memory, as far as the kernel granted it.
struct SecretProtection: OptionSet, Sendable, Hashable {
    let rawValue: UInt8

    /// No core dump contains the memory (`MADV_DONTDUMP`, Linux 3.4).
    static let leftOutOfDumps = SecretProtection(rawValue: UInt8(PLIMSOLL_SECRET_NOT_DUMPED))
    /// A forked child reads zeros (`MADV_WIPEONFORK`, Linux 4.14).
    static let zeroInChildren = SecretProtection(rawValue: UInt8(PLIMSOLL_SECRET_ZERO_IN_CHILDREN))
    /// The memory is never written to swap (`mlock`). `RLIMIT_MEMLOCK` bounds the bytes a process may lock: 8 MiB since
    /// Linux 5.16, 64 KiB before.
    static let locked = SecretProtection(rawValue: UInt8(PLIMSOLL_SECRET_LOCKED))

    private static let names: [(SecretProtection, String)] = [
        (.leftOutOfDumps, "left out of core dumps"), (.zeroInChildren, "zero in forked children"), (.locked, "locked"),
    ]
}

extension SecretProtection: CustomStringConvertible {
    /// The granted protections, comma separated; `"none"` for the empty set.
    var description: String {
        isEmpty ? "none" : Self.names.filter { contains($0.0) }.map(\.1).joined(separator: ", ")
    }
}
