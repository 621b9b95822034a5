import Glibc

/// Helpers for tests of files and sockets.
enum Fixture {
    /// Returns the text of a file of this repository.
    static func text(of path: String) -> String? {
        let root = #filePath.split(separator: "/").dropLast(3).joined(separator: "/")
        guard let file = fopen("/\(root)/\(path)", "r") else { return nil }
        defer { fclose(file) }
        var bytes = [UInt8](repeating: 0, count: 1 << 20)
        let count = fread(&bytes, 1, bytes.count, file)
        return String(decoding: bytes[..<count], as: UTF8.self)
    }

    /// A new directory with a short name, removed with this object.
    final class Directory: Sendable {
        let path: String

        init() {
            var template = Array("/tmp/plimsoll-XXXXXX".utf8CString)
            path = template.withUnsafeMutableBufferPointer { String(cString: mkdtemp($0.baseAddress!)!) }
        }

        deinit { rmdir(path) }
    }

    /// Returns true if `file` becomes readable within a minute. The limit only ends a hang; no test measures by that
    /// time.
    static func isReadable(_ file: Int32, within milliseconds: Int32 = 60_000) -> Bool {
        var files = pollfd(fd: file, events: Int16(POLLIN), revents: 0)
        return poll(&files, 1, milliseconds) > 0
    }

    /// Returns a socket bound to `path` without a listener.
    static func bound(_ path: String, _ type: __socket_type) -> Int32 {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let file = socket(AF_UNIX, Int32(type.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(file, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
        }
        return result == 0 ? file : -errno
    }

    /// Returns a blocking stream socket connected to `path`.
    static func connect(_ path: String) -> Int32 { connected(path, SOCK_STREAM) }

    /// Returns a blocking socket of type `type` connected to `path`, or a negative errno.
    static func connected(_ path: String, _ type: __socket_type) -> Int32 {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let file = socket(AF_UNIX, Int32(type.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { Glibc.connect(file, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
        }
        guard result != 0 else { return file }
        let error = errno
        close(file)
        return -error
    }

    /// Ends a connection at once. `close` alone leaves the connection open while a child that another test is just
    /// starting has a copy of the descriptor.
    static func hangUp(_ file: Int32) {
        shutdown(file, Int32(SHUT_RDWR))
        close(file)
    }

    /// Returns the bytes that can be read from `file` without waiting; `nil` at the end of the file.
    static func received(_ file: Int32) -> String? {
        var bytes = [UInt8](repeating: 0, count: 65_536)
        let count = recv(file, &bytes, bytes.count, Int32(MSG_DONTWAIT))
        return count == 0 ? nil : String(decoding: bytes[..<max(0, count)], as: UTF8.self)
    }

    @discardableResult
    static func send(_ file: Int32, _ bytes: some Collection<UInt8>) -> Int {
        let bytes = Array(bytes)
        return Glibc.send(file, bytes, bytes.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
    }

    /// Returns the number of this process's descriptors for the same pipe or file as `file`. Tests beside this one open
    /// and close other descriptors.
    static func descriptors(like file: Int32) -> Int {
        func same(_ other: Int32) -> stat? {
            var status = stat()
            return fstat(other, &status) == 0 ? status : nil
        }
        guard let wanted = same(file), let directory = opendir("/proc/self/fd") else { return -1 }
        defer { closedir(directory) }
        var count = 0
        while let entry = readdir(directory) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) { $0.withMemoryRebound(to: CChar.self, capacity: 256) { Int32(atoi($0)) } }
            // The names "." and ".." are no numbers, and give 0.
            guard entry.pointee.d_type == DT_LNK, let other = same(name) else { continue }
            if other.st_ino == wanted.st_ino, other.st_dev == wanted.st_dev { count += 1 }
        }
        return count
    }
}
