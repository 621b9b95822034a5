import Glibc

/// The error of a system call, with the kernel's text.
package struct KernelError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The errno, positive.
    package var number: Int32

    /// The kernel's text, such as `"Permission denied"`.
    package var description: String { number > 0 ? String(cString: strerror(number)) : "malformed" }

    /// True if the same call will fail again until the machine is changed: the file does not exist or is not
    /// accessible.
    var isLasting: Bool { [ENOENT, ENOTDIR, EACCES, EPERM, EROFS, EOPNOTSUPP, EINVAL].contains(number) }

    /// The text was read but not understood.
    static let malformed = KernelError(number: 0)
}
