import Glibc
import PlimsollDemos

/// Anonymous memory that is touched, so that the kernel charges it, and freed as a whole.
struct TouchedMemory {
    private let start: UnsafeMutableRawPointer
    private let size: Int

    /// Maps and touches `size` bytes.
    ///
    /// - Throws: `Failure` if the address space has run out; a limit of the group ends the process instead.
    init(_ size: Int) throws {
        guard let start = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
            start != MAP_FAILED
        else {
            throw Failure.failed("cannot map \(size) bytes: \(String(cString: strerror(errno)))")
        }
        for offset in stride(from: 0, to: size, by: Int(sysconf(Int32(_SC_PAGESIZE)))) {
            start.storeBytes(of: 1, toByteOffset: offset, as: UInt8.self)
        }
        (self.start, self.size) = (start, size)
    }

    func giveBack() { munmap(start, size) }
}
