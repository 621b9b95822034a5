import Glibc
package import Plimsoll

/// Pages of programs and libraries that were read at startup and are hardly needed afterwards. In a process that is
/// mostly idle, they are the largest part of the mapped memory.
package enum CleanPages {
    /// A file mapping, from `/proc/self/smaps`.
    package struct Mapping: Sendable, Hashable {
        package var start: UInt
        package var end: UInt
        /// The resident part of the mapping.
        package var resident: ByteCount
    }

    /// Unmaps the clean pages, which the page cache can return at once without losing a byte. Needed pages come back
    /// when touched, 64 KiB at a time.
    ///
    /// - Returns: bytes that were mapped in.
    @discardableResult
    package static func release() -> ByteCount {
        guard case .success(let text) = GroupText.read("/proc/self/smaps") else { return .zero }
        var released = ByteCount.zero
        for mapping in mappings(in: text) {
            // Safe while other threads run: no thread can write there, and none has, so the file still has every
            // byte. `Anonymous` counts copies of pages that were written before they were protected, as the linker
            // does. Locked memory is refused, and stays.
            if madvise(
                UnsafeMutableRawPointer(bitPattern: mapping.start), Int(mapping.end - mapping.start), MADV_DONTNEED)
                == 0
            {
                released += mapping.resident
            }
        }
        return released
    }

    /// Returns the private, read-only mappings whose pages are all identical to the file.
    package static func mappings(in smaps: [UInt8]) -> [Mapping] {
        var found: [Mapping] = [], current: Mapping?
        func finish() { if let current, current.resident > .zero { found.append(current) } }
        for line in smaps.split(separator: UInt8(ascii: "\n")) {
            // Field names begin with a capital letter, mappings with a lower-case hexadecimal digit.
            if line.first.map({ UInt8(ascii: "A")...UInt8(ascii: "Z") ~= $0 }) ?? true {
                guard current != nil, let colon = line.firstIndex(of: UInt8(ascii: ":")) else { continue }
                let value = ByteCount.kibibytes(GroupText.number(line[(colon + 1)...]) ?? 0)
                switch String(decoding: line[..<colon], as: UTF8.self) {
                case "Rss": current?.resident = value
                case "Anonymous", "Swap": if value > .zero { current = nil }
                default: break
                }
            } else {
                finish()
                current = mapping(line)
            }
        }
        finish()
        return found
    }

    /// Parses `start-end rwxp offset device inode path`. Returns `nil` for a mapping that may not be unmapped.
    private static func mapping(_ line: ArraySlice<UInt8>) -> Mapping? {
        let words = line.split(separator: UInt8(ascii: " "), maxSplits: 5).map { String(decoding: $0, as: UTF8.self) }
        guard words.count == 6, words[4] != "0", let dash = words[0].firstIndex(of: "-") else { return nil }
        let rights = Array(words[1].utf8)
        guard rights.count == 4, rights[0] == UInt8(ascii: "r"), rights[1] == UInt8(ascii: "-"),
            rights[3] == UInt8(ascii: "p"),
            let start = UInt(words[0][..<dash], radix: 16),
            let end = UInt(words[0][words[0].index(after: dash)...], radix: 16), start < end
        else { return nil }
        return Mapping(start: start, end: end, resident: .zero)
    }
}
