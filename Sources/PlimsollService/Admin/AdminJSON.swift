import FoundationEssentials

/// Encodes and decodes JSON for the admin socket and the web pages. Not thread-safe: one thread at a time may use an
/// instance.
final class AdminJSON {
    private let encoder = JSONEncoder()
    private let decoder = JSONDecoder()

    init() {
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // A purgeable may report any number, also NaN or infinity. A partly readable line is better than none.
        encoder.nonConformingFloatEncodingStrategy = .convertToString(
            positiveInfinity: "inf", negativeInfinity: "-inf", nan: "nan")
        decoder.nonConformingFloatDecodingStrategy = .convertFromString(
            positiveInfinity: "inf", negativeInfinity: "-inf", nan: "nan")
    }

    /// Returns `value` as a line, including the newline.
    func line(_ value: some Encodable) -> [UInt8] {
        guard let data = try? encoder.encode(value) else {
            return Array(#"{"code":"failed","error":"the answer can't be written as JSON","ok":false}"#.utf8) + [10]
        }
        return [UInt8](unsafeUninitializedCapacity: data.count + 1) { buffer, count in
            _ = data.copyBytes(to: buffer)
            buffer[data.count] = UInt8(ascii: "\n")
            count = data.count + 1
        }
    }

    /// Returns `value` as text without a newline.
    func text(_ value: some Encodable) throws -> String { String(decoding: try encoder.encode(value), as: UTF8.self) }

    /// Decodes the value in `text`.
    func value<Value: Decodable>(_ text: String) throws -> Value {
        try decoder.decode(Value.self, from: Data(text.utf8))
    }

    /// Decodes the answer in `line`, which has no newline.
    func answer(_ line: some Collection<UInt8>) throws -> AdminAnswer {
        try decoder.decode(AdminAnswer.self, from: Data(line))
    }

    /// Decodes the request in `line`, which has no newline. Rejects empty, nested and non-UTF-8 lines before the JSON
    /// parser sees the line.
    func request(_ line: ArraySlice<UInt8>) throws(AdminRefusal) -> AdminRequest {
        let line = line.last == UInt8(ascii: "\r") ? line.dropLast() : line
        guard !line.allSatisfy({ $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }) else {
            throw AdminRefusal(.malformed, "the line is empty")
        }
        guard !line.contains(0), String(validating: line, as: UTF8.self) != nil else {
            throw AdminRefusal(.malformed, "the line is not UTF-8 text")
        }
        guard Self.depth(line) <= 1 else {
            throw AdminRefusal(.malformed, "the line is nested; a request is one flat JSON object")
        }
        do {
            return try decoder.decode(AdminRequest.self, from: Data(line))
        } catch let refusal as AdminRefusal {
            throw refusal
        } catch {
            throw AdminRefusal(
                .malformed, #"the line is not JSON; a request is one object, for example {"command":"status"}"#)
        }
    }

    /// Returns an upper bound of the nesting depth of arrays and objects. Does not check that brackets match; for
    /// valid JSON the depth is exact.
    static func depth(_ line: ArraySlice<UInt8>) -> Int {
        var depth = 0, deepest = 0, isText = false, isEscaped = false
        for byte in line {
            if isText {
                if isEscaped {
                    isEscaped = false
                } else if byte == UInt8(ascii: "\\") {
                    isEscaped = true
                } else if byte == UInt8(ascii: "\"") {
                    isText = false
                }
                continue
            }
            switch byte {
            case UInt8(ascii: "\""): isText = true
            case UInt8(ascii: "{"), UInt8(ascii: "["):
                depth += 1
                deepest = max(deepest, depth)
            case UInt8(ascii: "}"), UInt8(ascii: "]"): depth = max(0, depth - 1)
            default: break
            }
        }
        return deepest
    }
}
