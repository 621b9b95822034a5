#if canImport(Glibc) && !PLIMSOLL_INERT
import CPlimsollLinux
import Glibc
import Plimsoll

/// The system calls for the environment, below every parser. `Kernel` has those for memory.
package protocol EnvironmentKernel: Kernel {
    /// Reads the queue of a watch or a timer. Returns the number of bytes, `-EAGAIN` for nothing.
    func receive(_ file: Int32, into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int

    /// Adds `mask` to the events that `watch` reports for the directory at `path`; returns the descriptor.
    func watchDirectory(_ path: String, _ watch: Int32, _ mask: UInt32) -> Int32

    /// Removes the directory of `descriptor` from `watch`.
    func unwatch(_ watch: Int32, _ descriptor: Int32)

    /// Returns the details of the file at `path`, without following a link.
    func details(of path: String) -> FileDetails

    /// Returns the target of the link at `path`; `nil` if there is no link.
    func target(of path: String) -> String?

    /// Returns the names in a directory, unordered; `nil` if the directory can't be read.
    func names(in directory: String) -> [String]?

    /// Makes a timer of the wall clock that also becomes ready when the clock is set.
    func makeClockTimer() -> Int32

    /// Sets the timer to a second since 1970.
    func setClockTimer(_ timer: Int32, at second: Int64) -> Int32

    /// `CLOCK_REALTIME` and `CLOCK_BOOTTIME` at one instant.
    var clocks: (real: Duration, boot: Duration) { get }

    /// Returns the time zone's distance east of UTC at a second since 1970.
    func secondsFromUTC(at second: Int64) -> Int

    /// Opens a socket that receives the kernel's uevents.
    func openUevents() -> Int32

    /// Receives the next uevent; returns zero for messages that are not from the kernel.
    func receiveUevent(_ file: Int32, into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int
}

/// The kind, size and time of a file.
package struct FileDetails: Sendable, Equatable {
    package enum Kind: Sendable { case file, directory, link, missing, unreachable }
    package var kind: Kind
    package var size: Int
    package var modified: Duration
    package static let missing = FileDetails(kind: .missing, size: 0, modified: .zero)
    package static let unreachable = FileDetails(kind: .unreachable, size: 0, modified: .zero)
}

extension HostKernel: EnvironmentKernel {
    package func receive(_ file: Int32, into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
        again { Glibc.read(file, buffer.baseAddress, buffer.count) }
    }

    package func watchDirectory(_ path: String, _ watch: Int32, _ mask: UInt32) -> Int32 {
        plimsoll_watch_directory(watch, prefix + path, mask)
    }
    package func unwatch(_ watch: Int32, _ descriptor: Int32) { plimsoll_unwatch(watch, descriptor) }

    package func details(of path: String) -> FileDetails {
        var status = stat()
        guard lstat(prefix + path, &status) == 0 else {
            return errno == ENOENT || errno == ENOTDIR ? .missing : .unreachable
        }
        let modified = Duration.seconds(status.st_mtim.tv_sec) + .nanoseconds(status.st_mtim.tv_nsec)
        let kind: FileDetails.Kind =
            switch status.st_mode & S_IFMT {
            case S_IFDIR: .directory
            case S_IFLNK: .link
            default: .file
            }
        return FileDetails(kind: kind, size: Int(status.st_size), modified: modified)
    }

    package func target(of path: String) -> String? {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(PATH_MAX)) { buffer in
            let count = readlink(prefix + path, buffer.baseAddress!, buffer.count)
            guard count > 0 else { return nil }
            return String(decoding: buffer[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
        }
    }

    package func names(in directory: String) -> [String]? {
        let (names, error) = Self.listing(of: prefix + directory)
        return error != 0 && names.isEmpty ? nil : names
    }

    package func makeClockTimer() -> Int32 { plimsoll_clock_timer() }
    package func setClockTimer(_ timer: Int32, at second: Int64) -> Int32 { plimsoll_clock_timer_set(timer, second) }

    package var clocks: (real: Duration, boot: Duration) {
        var real: Int64 = 0, boot: Int64 = 0
        plimsoll_clocks(&real, &boot)
        return (.nanoseconds(real), .nanoseconds(boot))
    }

    package func secondsFromUTC(at second: Int64) -> Int { Int(plimsoll_seconds_from_utc(second)) }
    package func openUevents() -> Int32 { plimsoll_uevents() }
    package func receiveUevent(_ file: Int32, into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
        plimsoll_uevent(file, buffer.baseAddress, UInt(buffer.count))
    }
}
#endif
