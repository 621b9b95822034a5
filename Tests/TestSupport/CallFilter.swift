import Glibc

/// Refusals of system calls by the calling thread and the threads that it starts, for the rest of their lives: a
/// seccomp filter installed late. For tests in separate processes.
public struct CallFilter {
    private typealias Instruction = (code: UInt16, ifTrue: UInt8, ifFalse: UInt8, value: UInt32)
    private var instructions: [Instruction] = []

    // Numbers of <asm/unistd.h>.
    #if arch(x86_64)
    public static let (membarrier, madvise, mmap, readProcess) = (UInt32(324), UInt32(28), UInt32(9), UInt32(310))
    #elseif arch(arm64)
    public static let (membarrier, madvise, mmap, readProcess) = (UInt32(283), UInt32(233), UInt32(222), UInt32(270))
    #endif

    public init() {}

    /// A filter for every call that gives pages back: MADV_DONTNEED, MADV_DONTNEED_LOCKED, MAP_FIXED.
    public static var refusingReclaim: CallFilter {
        var filter = CallFilter()
        filter.refuse(madvise, argument: 2, 4, EINVAL)
        filter.refuse(madvise, argument: 2, 24, EINVAL)
        filter.refuse(mmap, argument: 3, 0x10, areFlags: true, EAGAIN)
        return filter
    }

    /// Refuses every call with this number.
    public mutating func refuse(_ number: UInt32, _ error: Int32) {
        instructions += [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x0005_0000 | UInt32(error))]
    }

    /// Refuses calls with this number if an argument, counted from 0, is `value`. If the argument is flags, all bits of
    /// `value` must be set.
    public mutating func refuse(_ number: UInt32, argument: UInt32, _ value: Int32, areFlags: Bool = false, _ error: Int32) {
        instructions += [
            (0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16 + 8 * argument), (areFlags ? 0x45 : 0x15, 0, 1, UInt32(value)),
            (0x06, 0, 0, 0x0005_0000 | UInt32(error)),
        ]
    }

    /// Installs the filter. Returns false if the kernel accepts no filters.
    public func install() -> Bool {
        typealias Control = @convention(c) (Int32, UInt, UInt, UInt, UInt) -> Int32
        guard let prctl = dlsym(nil, "prctl").map({ unsafeBitCast($0, to: Control.self) }) else { return false }
        let program = UnsafeMutableRawPointer.allocate(byteCount: 8 * (instructions.count + 1), alignment: 8)
        let header = UnsafeMutableRawPointer.allocate(byteCount: 16, alignment: 8)
        defer {
            program.deallocate()
            header.deallocate()
        }
        // The last instruction allows all other calls.
        for (place, instruction) in (instructions + [(0x06, 0, 0, 0x7fff_0000)]).enumerated() {
            program.storeBytes(of: instruction.code, toByteOffset: place * 8, as: UInt16.self)
            program.storeBytes(of: instruction.ifTrue, toByteOffset: place * 8 + 2, as: UInt8.self)
            program.storeBytes(of: instruction.ifFalse, toByteOffset: place * 8 + 3, as: UInt8.self)
            program.storeBytes(of: instruction.value, toByteOffset: place * 8 + 4, as: UInt32.self)
        }
        header.storeBytes(of: UInt16(instructions.count + 1), as: UInt16.self)
        header.storeBytes(of: UInt(bitPattern: program), toByteOffset: 8, as: UInt.self)
        // PR_SET_NO_NEW_PRIVS, and PR_SET_SECCOMP with SECCOMP_MODE_FILTER.
        return prctl(38, 1, 0, 0, 0) == 0 && prctl(22, 2, UInt(bitPattern: header), 0, 0) == 0
    }
}
