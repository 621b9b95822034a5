public import Synchronization

/// Word-by-word copies of trivial values that another thread may be overwriting, with relaxed atomics on both
/// sides. A copy may be torn, but the read is defined. Readers check the shard's sequence before they use the copy
/// (H.-J. Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012).
@usableFromInline
enum CacheWords {
    /// Reads a trivial value from memory that may be written meanwhile. The result may be torn; validate the
    /// sequence before using the value.
    @inlinable @inline(__always)
    static func read<Element>(_ type: Element.Type, from source: UnsafeMutableRawPointer) -> Element {
        // Resolved when specialized. A one-word value needs no stack space, and no stack check that compilers add
        // to functions with such space.
        if MemoryLayout<Element>.size == 8, MemoryLayout<Element>.alignment == 8 {
            return unsafeBitCast(atomic(UInt64.self, source).pointee.load(ordering: .relaxed), to: type)
        }
        return withUnsafeTemporaryAllocation(of: type, capacity: 1) { room in
            let copy = room.baseAddress.unsafelyUnwrapped
            read(
                MemoryLayout<Element>.size, MemoryLayout<Element>.alignment, from: source,
                to: UnsafeMutableRawPointer(copy))
            return copy.pointee
        }
    }

    /// Copies `size` bytes out of memory that may be written meanwhile.
    @inlinable @inline(__always)
    static func read(
        _ size: Int, _ alignment: Int, from source: UnsafeMutableRawPointer, to target: UnsafeMutableRawPointer
    ) {
        // Size and alignment are constants when specialized, so that a word is one move.
        var offset = 0
        if alignment >= 8 {
            while offset &+ 8 <= size {
                target.storeBytes(
                    of: atomic(UInt64.self, source + offset).pointee.load(ordering: .relaxed), toByteOffset: offset,
                    as: UInt64.self)
                offset &+= 8
            }
        }
        if alignment >= 4 {
            while offset &+ 4 <= size {
                target.storeBytes(
                    of: atomic(UInt32.self, source + offset).pointee.load(ordering: .relaxed), toByteOffset: offset,
                    as: UInt32.self)
                offset &+= 4
            }
        }
        while offset < size {
            target.storeBytes(
                of: atomic(UInt8.self, source + offset).pointee.load(ordering: .relaxed), toByteOffset: offset,
                as: UInt8.self)
            offset &+= 1
        }
    }

    /// Copies `size` bytes into memory that may be read meanwhile.
    @inlinable @inline(__always)
    static func write(_ size: Int, _ alignment: Int, from source: UnsafeRawPointer, to target: UnsafeMutableRawPointer)
    {
        var offset = 0
        if alignment >= 8 {
            while offset &+ 8 <= size {
                atomic(UInt64.self, target + offset).pointee.store(
                    source.loadUnaligned(fromByteOffset: offset, as: UInt64.self), ordering: .relaxed)
                offset &+= 8
            }
        }
        if alignment >= 4 {
            while offset &+ 4 <= size {
                atomic(UInt32.self, target + offset).pointee.store(
                    source.loadUnaligned(fromByteOffset: offset, as: UInt32.self), ordering: .relaxed)
                offset &+= 4
            }
        }
        while offset < size {
            atomic(UInt8.self, target + offset).pointee.store(
                source.loadUnaligned(fromByteOffset: offset, as: UInt8.self), ordering: .relaxed)
            offset &+= 1
        }
    }

    @inlinable @inline(__always)
    static func atomic<Word: AtomicRepresentable>(_ type: Word.Type, _ address: UnsafeMutableRawPointer)
        -> UnsafeMutablePointer<Atomic<Word>>
    {
        // An atomic has the layout of its word.
        address.assumingMemoryBound(to: Atomic<Word>.self)
    }
}
