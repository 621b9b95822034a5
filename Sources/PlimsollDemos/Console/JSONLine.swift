import Foundation

/// One JSON object a line, keys in a fixed order.
package enum JSONLine {
    package static func encode(_ value: some Encodable) -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Records hold strings, integers and finite numbers only, which always encode.
        guard let data = try? encoder.encode(value) else { preconditionFailure("\(type(of: value)) does not encode") }
        return String(decoding: data, as: UTF8.self)
    }

    package static func decode<Value: Decodable>(_ type: Value.Type, from line: some StringProtocol) throws -> Value {
        try JSONDecoder().decode(type, from: Data(line.utf8))
    }
}
