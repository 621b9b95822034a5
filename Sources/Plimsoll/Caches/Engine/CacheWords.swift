public import Synchronization

/// Copies of trivial values that another thread may be overwriting: word by word, with relaxed atomics on both sides. What is read may be torn, but reading it
/// is defined; whoever reads checks the shard's sequence before making anything of it (H.-J. Boehm, "Can seqlocks get along with programming language memory
/// models?", MSPC 2012).
@usableFromInline
enum CacheWords {
    /// A trivial value out of memory that may be written meanwhile: nothing is to be made of it before it is known not to be halves of two.
    @inlinable @inline(__always)
    static func read<Element>(_ type: Element.Type, from source: UnsafeMutableRawPointer) -> Element {
        // Known when specialized. A value that is a word needs no room on the stack, nor the check that compilers make of functions that use some.
        if MemoryLayout<Element>.size == 8, MemoryLayout<Element>.alignment == 8 {
            return unsafeBitCast(atomic(UInt64.self, source).pointee.load(ordering: .relaxed), to: type)
        }
        return withUnsafeTemporaryAllocation(of: type, capacity: 1) { room in
            let copy = room.baseAddress.unsafelyUnwrapped
            read(MemoryLayout<Element>.size, MemoryLayout<Element>.alignment, from: source, to: UnsafeMutableRawPointer(copy))
            return copy.pointee
        }
    }

    /// Copies `size` bytes out of memory that may be written meanwhile.
    @inlinable @inline(__always)
    static func read(_ size: Int, _ alignment: Int, from source: UnsafeMutableRawPointer, to target: UnsafeMutableRawPointer) {
        // Size and alignment are constants when specialized, so that a word is one move.
        var offset = 0
        if alignment >= 8 {
            while offset &+ 8 <= size {
                target.storeBytes(of: atomic(UInt64.self, source + offset).pointee.load(ordering: .relaxed), toByteOffset: offset, as: UInt64.self)
                offset &+= 8
            }
        }
        if alignment >= 4 {
            while offset &+ 4 <= size {
                target.storeBytes(of: atomic(UInt32.self, source + offset).pointee.load(ordering: .relaxed), toByteOffset: offset, as: UInt32.self)
                offset &+= 4
            }
        }
        while offset < size {
            target.storeBytes(of: atomic(UInt8.self, source + offset).pointee.load(ordering: .relaxed), toByteOffset: offset, as: UInt8.self)
            offset &+= 1
        }
    }

    /// Copies `size` bytes into memory that may be read meanwhile.
    @inlinable @inline(__always)
    static func write(_ size: Int, _ alignment: Int, from source: UnsafeRawPointer, to target: UnsafeMutableRawPointer) {
        var offset = 0
        if alignment >= 8 {
            while offset &+ 8 <= size {
                atomic(UInt64.self, target + offset).pointee.store(source.loadUnaligned(fromByteOffset: offset, as: UInt64.self), ordering: .relaxed)
                offset &+= 8
            }
        }
        if alignment >= 4 {
            while offset &+ 4 <= size {
                atomic(UInt32.self, target + offset).pointee.store(source.loadUnaligned(fromByteOffset: offset, as: UInt32.self), ordering: .relaxed)
                offset &+= 4
            }
        }
        while offset < size {
            atomic(UInt8.self, target + offset).pointee.store(source.loadUnaligned(fromByteOffset: offset, as: UInt8.self), ordering: .relaxed)
            offset &+= 1
        }
    }

    @inlinable @inline(__always)
    static func atomic<Word: AtomicRepresentable>(_ type: Word.Type, _ address: UnsafeMutableRawPointer) -> UnsafeMutablePointer<Atomic<Word>> {
        // An atomic has the layout of its word.
        address.assumingMemoryBound(to: Atomic<Word>.self)
    }
}
