import Glibc

/// Why a system call failed, in the kernel's words.
struct KernelError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The errno, positive.
    var number: Int32

    /// `"Permission denied"`.
    var description: String { number > 0 ? String(cString: strerror(number)) : "malformed" }

    /// The text was there but not understood.
    static let malformed = KernelError(number: 0)
}
