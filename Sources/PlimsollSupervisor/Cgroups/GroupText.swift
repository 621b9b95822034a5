import Glibc

/// Reads and writes small kernel files as a whole.
package enum GroupText {
    /// Returns the contents of a file, or the errno.
    package static func read(_ path: String) -> Result<[UInt8], Failure> { read(path, in: AT_FDCWD) }

    /// Returns the contents of the file `name` in the directory open at `directory`, or the errno.
    static func read(_ name: String, in directory: Int32) -> Result<[UInt8], Failure> {
        let file = openat(directory, name, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return .failure(Failure(number: errno)) }
        defer { close(file) }
        var text: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 16384)
        // No file read here comes near 16 MiB. The bound ends the reading of an endless file.
        while text.count < 16 << 20 {
            let count = Glibc.read(file, &chunk, chunk.count)
            if count < 0, errno == EINTR { continue }
            if count < 0 { return .failure(Failure(number: errno)) }
            if count == 0 { break }
            text.append(contentsOf: chunk[..<count])
        }
        return .success(text)
    }

    /// Writes `text` in one call, as control files require. Returns the errno of a failure; `nil` on success.
    package static func write(_ text: String, to path: String) -> Int32? { write(text, to: path, in: AT_FDCWD) }

    static func write(_ text: String, to name: String, in directory: Int32) -> Int32? {
        let file = openat(directory, name, O_WRONLY | O_CLOEXEC)
        guard file >= 0 else { return errno }
        defer { close(file) }
        var text = text
        return text.withUTF8 { bytes in
            while Glibc.write(file, bytes.baseAddress, bytes.count) < 0 {
                if errno != EINTR { return errno }
            }
            return nil
        }
    }

    /// Writes `text` to an open file. Allocates nothing, for use when memory is short.
    static func write(_ text: StaticString, to file: Int32) -> Int32? {
        while Glibc.write(file, text.utf8Start, text.utf8CodeUnitCount) < 0 {
            if errno != EINTR { return errno }
        }
        return nil
    }

    /// The errno of a file that could not be read.
    package struct Failure: Error { var number: Int32 }

    /// Returns the first number in `text`; `nil` for `max` and for any other text.
    package static func number(_ text: some Collection<UInt8>) -> Int? {
        Int(String(decoding: text, as: UTF8.self).split(whereSeparator: \.isWhitespace).first ?? "")
    }

    /// Returns the number after `key` at the start of a line.
    package static func number(of key: String, in text: some Collection<UInt8>) -> Int? {
        for line in text.split(separator: UInt8(ascii: "\n")) {
            let words = line.split(separator: UInt8(ascii: " "))
            if words.count == 2, words[0].elementsEqual(key.utf8) { return number(words[1]) }
        }
        return nil
    }

    /// Returns the pids in `cgroup.procs`. A pid may occur twice there, and pids of other namespaces are listed as 0
    /// (K38).
    package static func pids(_ text: some Collection<UInt8>) -> Set<Int32> {
        Set(
            text.split(separator: UInt8(ascii: "\n")).compactMap { Int32(String(decoding: $0, as: UTF8.self)) }.filter {
                $0 > 0
            })
    }

    /// Returns the words of `cgroup.controllers` and similar files.
    package static func words(_ path: String) -> [String] {
        guard case .success(let text) = read(path) else { return [] }
        return String(decoding: text, as: UTF8.self).split(whereSeparator: \.isWhitespace).map(String.init)
    }
}
