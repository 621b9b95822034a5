import Glibc
import Plimsoll

// The package Benchmarks compiles this file as well, beside links to the files with the types that are imported here.
#if canImport(PlimsollDemos)
import PlimsollDemos
#endif

/// A trace of requests: lines of `KEY` or `KEY,SIZE`.
struct TraceFile {
    /// File name without `.txt` and `.txt.zst`.
    let name: String
    /// Keys in order, renumbered by first appearance: 0, 1, 2, …
    private(set) var requests: [UInt32] = []
    /// The size first seen of each key, by number; empty if the file has no sizes.
    private(set) var sizes: [UInt32] = []
    private(set) var keyCount = 0

    /// Creates a synthetic trace.
    ///
    /// - Parameter size: bytes of each entry; `nil` for none.
    init(_ name: String, requests: [UInt32], keyCount: Int, size: UInt32? = nil) {
        (self.name, self.requests, self.keyCount) = (name, requests, keyCount)
        sizes = size.map { [UInt32](repeating: $0, count: keyCount) } ?? []
    }

    /// Reads a file; `.zst` through the program `zstd`.
    init(_ path: String) throws {
        let file = path.split(separator: "/").last ?? ""
        name = String(file.split(separator: ".").first ?? file)
        var numbers: [UInt64: UInt32] = [:]
        var key: UInt64 = 0, size: UInt32 = 0, isKey = true, isEmpty = true
        try Self.read(path) { bytes in
            for byte in bytes {
                switch byte {
                case UInt8(ascii: "0")...UInt8(ascii: "9") where isKey:
                    key = key &* 10 &+ UInt64(byte &- UInt8(ascii: "0"))
                    isEmpty = false
                case UInt8(ascii: "\n"):
                    if !isEmpty {
                        let number = numbers[key] ?? UInt32(numbers.count)
                        if number == numbers.count {
                            numbers[key] = number
                            if !isKey { sizes.append(size) }
                        }
                        requests.append(number)
                    }
                    (key, size, isKey, isEmpty) = (0, 0, true, true)
                case UInt8(ascii: "0")...UInt8(ascii: "9"): size = size &* 10 &+ UInt32(byte &- UInt8(ascii: "0"))
                default: isKey = false
                }
            }
        }
        keyCount = numbers.count
        if sizes.count != keyCount { sizes = [] }
        guard !requests.isEmpty else { throw Failure.failed("\(printable(path)) holds no requests") }
    }

    /// Returns the paths of the traces in a directory, sorted by name.
    static func paths(in directory: String) throws -> [String] {
        guard let listing = opendir(directory) else {
            throw Failure.failed("cannot use \(printable(directory)): \(String(cString: strerror(errno)))")
        }
        defer { closedir(listing) }
        var names: [String] = []
        while let entry = readdir(listing) {
            names.append(
                withUnsafeBytes(of: &entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) })
        }
        let traces = names.filter { $0.hasSuffix(".txt") || $0.hasSuffix(".txt.zst") }.sorted()
        guard !traces.isEmpty else {
            throw Failure.failed("\(printable(directory)) holds no files named *.txt.zst or *.txt")
        }
        return traces.map { directory + "/" + $0 }
    }

    private static func read(_ path: String, _ body: (UnsafeRawBufferPointer) -> Void) throws {
        guard path.hasSuffix(".zst") else {
            let file = open(path, O_RDONLY | O_CLOEXEC)
            guard file >= 0 else {
                throw Failure.failed("cannot use \(printable(path)): \(String(cString: strerror(errno)))")
            }
            defer { close(file) }
            return drain(file, body)
        }
        let child = try ChildProcess("/usr/bin/env", ["env", "zstd", "-dcq", "--", path], readsOutput: true)
        if let output = child.output { drain(output.descriptor, body) }
        guard child.waitForEnd() == .exited(0) else {
            throw Failure.unavailable(
                "cannot read \(printable(path)) through zstd; install that program or name a directory of .txt files"
            )
        }
    }

    private static func drain(_ descriptor: Int32, _ body: (UnsafeRawBufferPointer) -> Void) {
        var buffer = [UInt8](repeating: 0, count: 1 << 18)
        while true {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            if count > 0 {
                buffer.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0[..<count])) }
            } else if count < 0, errno == EAGAIN || errno == EINTR {
                var wanted = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
                poll(&wanted, 1, -1)
            } else {
                return
            }
        }
    }
}
