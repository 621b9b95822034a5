// The part of Foundation without locale data.
import FoundationEssentials
public import Plimsoll

/// Encodes and decodes a manager's status as JSON. The only place that defines this format.
public enum StatusJSON {
    /// Returns `status` as one line of JSON with a fixed order of keys.
    ///
    /// - Throws: An error if `status` contains a number that JSON cannot express.
    public static func encode(_ status: ManagerStatus) throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return String(decoding: try encoder.encode(status), as: UTF8.self)
    }

    /// Decodes text that `encode` has written, in this version or another.
    ///
    /// - Throws: An error if the text is not JSON, or lacks keys that every version has.
    public static func decode(_ text: String) throws -> ManagerStatus {
        try JSONDecoder().decode(ManagerStatus.self, from: Data(text.utf8))
    }
}
