import Glibc

/// Why a system call failed, in the kernel's words.
package struct KernelError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The errno, positive.
    package var number: Int32

    /// `"Permission denied"`.
    package var description: String { number > 0 ? String(cString: strerror(number)) : "malformed" }

    /// Whether the same call would be refused again as long as nobody changes the machine: the file does not exist or is not for us.
    var isLasting: Bool { [ENOENT, ENOTDIR, EACCES, EPERM, EROFS, EOPNOTSUPP, EINVAL].contains(number) }

    /// The text was there but not understood.
    static let malformed = KernelError(number: 0)
}
