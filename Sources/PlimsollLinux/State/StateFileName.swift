/// The file names of one state.
///
/// Letters, digits, `_`, `-` and (except at the start) `.` are kept. Every other byte of the name's UTF-8 becomes `%`
/// and two digits. So no name leaves the directory, and no two names share a file.
struct StateFileName: Hashable {
    /// Maximum number of bytes of an escaped name. With a suffix the name stays below the limit of a file name
    /// (`NAME_MAX`, 255).
    static let longest = 200
    /// Number of states of a name that are kept aside; the oldest is removed.
    static let mostAside = 3

    /// The suffixes of files that this package makes.
    private static let stateEnding = ".state", newEnding = ".state-new"

    let escaped: String

    /// Creates the file names of a state; fails for a name that is empty or too long.
    init?(_ name: String) {
        var bytes: [UInt8] = []
        for byte in name.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"),
                UInt8(ascii: "_"), UInt8(ascii: "-"):
                bytes.append(byte)
            case UInt8(ascii: ".") where !bytes.isEmpty: bytes.append(byte)
            default: bytes += [UInt8(ascii: "%"), Self.digit(byte >> 4), Self.digit(byte & 15)]
            }
            if bytes.count > Self.longest { return nil }
        }
        guard !bytes.isEmpty else { return nil }
        escaped = String(decoding: bytes, as: UTF8.self)
    }

    /// The file that holds the state.
    var file: String { escaped + Self.stateEnding }
    /// The file that is written first and then renamed to `file`.
    var new: String { escaped + Self.newEnding }
    /// The file of a state set aside; `index` 0 is the latest.
    func aside(_ index: Int) -> String { "\(escaped)\(Self.stateEnding)-aside-\(index + 1)" }

    /// Returns true if `file` was left by an interrupted write.
    static func isLeftover(_ file: String) -> Bool { file.hasSuffix(newEnding) }

    private static func digit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "A") + value - 10
    }
}
