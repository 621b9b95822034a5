/// The files of one state.
///
/// Letters, digits, `_`, `-` and, but for the first place, `.` stand for themselves; every other byte of the name's UTF-8 becomes `%` and two
/// digits, so that no name leaves the directory and no two share a file.
struct StateFileName: Hashable {
    /// Bytes of an escaped name: with what follows it, less than a file name may have (`NAME_MAX`, 255).
    static let longest = 200
    /// So many states of a name are kept aside; the oldest goes.
    static let mostAside = 3

    /// The endings of what this package makes.
    private static let stateEnding = ".state", newEnding = ".state-new"

    let escaped: String

    /// `nil` for a name that is empty or too long.
    init?(_ name: String) {
        var bytes: [UInt8] = []
        for byte in name.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "0")...UInt8(ascii: "9"),
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

    /// What holds the state.
    var file: String { escaped + Self.stateEnding }
    /// What is written, and then takes the place of `file`.
    var new: String { escaped + Self.newEnding }
    /// The state set aside last but `index`.
    func aside(_ index: Int) -> String { "\(escaped)\(Self.stateEnding)-aside-\(index + 1)" }

    /// Whether an interrupted write has left the file of that name.
    static func isLeftover(_ file: String) -> Bool { file.hasSuffix(newEnding) }

    private static func digit(_ value: UInt8) -> UInt8 { value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "A") + value - 10 }
}
