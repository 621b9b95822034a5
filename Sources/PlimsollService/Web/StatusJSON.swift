// The half of Foundation that comes without its tables of the world's languages.
import FoundationEssentials
public import Plimsoll

/// A manager's status as text for programs. The one place that knows how.
public enum StatusJSON {
    /// `status` in one line of JSON, keys in a fixed order.
    ///
    /// - Throws: if it holds a number that JSON can't express.
    public static func encode(_ status: ManagerStatus) throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return String(decoding: try encoder.encode(status), as: UTF8.self)
    }

    /// What `encode` wrote, in this version or another.
    ///
    /// - Throws: if it is no JSON, or lacks what every version has.
    public static func decode(_ text: String) throws -> ManagerStatus { try JSONDecoder().decode(ManagerStatus.self, from: Data(text.utf8)) }
}
