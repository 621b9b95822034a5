/// A parser for a JSON object of strings, integers, booleans and nulls, the only values in a journal line.
///
/// Safe on any input; errors give the position and the reason.
struct FlatJSON {
    enum Value: Equatable { case string(String), integer(Int), bool(Bool), null }

    struct Mistake: Error, Equatable, CustomStringConvertible {
        /// Byte position in the line, counted from 1.
        var column: Int
        var reason: String
        var description: String { "column \(column): \(reason)" }
    }

    private(set) var values: [String: Value] = [:]
    private var bytes: [UInt8]
    private var place = 0

    /// The maximum length of a line. The supervisor writes no longer ones.
    static let longest = 1 << 16

    init(_ text: some StringProtocol) throws(Mistake) {
        bytes = Array(text.utf8)
        if bytes.count > Self.longest {
            throw Mistake(column: Self.longest, reason: "longer than \(Self.longest) bytes")
        }
        try expect("{")
        skip()
        if peek() != UInt8(ascii: "}") { repeat { try pair() } while takes(",") }
        try expect("}")
        skip()
        if place < bytes.count { throw mistake("data after the object") }
    }

    private mutating func pair() throws(Mistake) {
        skip()
        let start = place, key = try string()
        try expect(":")
        skip()
        guard values.updateValue(try value(), forKey: key) == nil else {
            throw Mistake(column: start + 1, reason: "a duplicate key")
        }
    }

    private mutating func value() throws(Mistake) -> Value {
        switch peek() {
        case UInt8(ascii: "\"")?: return .string(try string())
        case UInt8(ascii: "-")?, (UInt8(ascii: "0")...UInt8(ascii: "9"))?: return .integer(try integer())
        default:
            for (word, value) in [("true", Value.bool(true)), ("false", .bool(false)), ("null", .null)]
            where bytes[place...].starts(with: word.utf8) {
                place += word.utf8.count
                return value
            }
            throw mistake("not a string, an integer, true, false or null")
        }
    }

    private mutating func integer() throws(Mistake) -> Int {
        let start = place
        if peek() == UInt8(ascii: "-") { place += 1 }
        while let byte = peek(), byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9") { place += 1 }
        let digits = bytes[start..<place].drop { $0 == UInt8(ascii: "-") }
        guard let number = Int(String(decoding: bytes[start..<place], as: UTF8.self)),
            digits.count == 1 || digits.first != UInt8(ascii: "0")
        else {
            throw Mistake(column: start + 1, reason: "not an integer of 64 bits")
        }
        return number
    }

    private mutating func string() throws(Mistake) -> String {
        try expect("\"")
        var text: [UInt8] = []
        while let byte = peek() {
            place += 1
            switch byte {
            case UInt8(ascii: "\""):
                guard let string = String(validating: text, as: UTF8.self) else { throw mistake("not UTF-8") }
                return string
            case UInt8(ascii: "\\"): try escape(&text)
            case 0..<0x20: throw mistake("a control character in a string")
            default: text.append(byte)
            }
        }
        throw mistake("an unterminated string")
    }

    private mutating func escape(_ text: inout [UInt8]) throws(Mistake) {
        guard let byte = peek() else { throw mistake("an unterminated string") }
        place += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): text.append(byte)
        case UInt8(ascii: "n"): text.append(10)
        case UInt8(ascii: "r"): text.append(13)
        case UInt8(ascii: "t"): text.append(9)
        case UInt8(ascii: "b"): text.append(8)
        case UInt8(ascii: "f"): text.append(12)
        case UInt8(ascii: "u"):
            var code = try hex()
            // High surrogate: the low surrogate must follow.
            if code & 0xfc00 == 0xd800, bytes[place...].starts(with: "\\u".utf8) {
                place += 2
                let low = try hex()
                if low & 0xfc00 == 0xdc00 {
                    code = 0x10000 + (code & 0x3ff) << 10 + low & 0x3ff
                } else {
                    throw mistake("half of a surrogate pair")
                }
            }
            guard let scalar = Unicode.Scalar(code) else { throw mistake("half of a surrogate pair") }
            text.append(contentsOf: Character(scalar).utf8)
        default: throw mistake("an unknown escape")
        }
    }

    private mutating func hex() throws(Mistake) -> UInt32 {
        let digits = bytes[place...].prefix(4)
        guard digits.count == 4, digits.allSatisfy({ Character(Unicode.Scalar($0)).isHexDigit }),
            let code = UInt32(String(decoding: digits, as: UTF8.self), radix: 16)
        else { throw mistake("\\u without four hexadecimal digits") }
        place += 4
        return code
    }

    // MARK: - Bytes

    private func peek() -> UInt8? { place < bytes.count ? bytes[place] : nil }
    private func mistake(_ reason: String) -> Mistake { Mistake(column: min(place, bytes.count) + 1, reason: reason) }

    private mutating func skip() { while let byte = peek(), byte == 32 || byte == 9 || byte == 13 { place += 1 } }

    private mutating func takes(_ character: Unicode.Scalar) -> Bool {
        skip()
        guard let byte = peek(), byte == UInt8(ascii: character) else { return false }
        place += 1
        return true
    }

    private mutating func expect(_ character: Unicode.Scalar) throws(Mistake) {
        if !takes(character) {
            throw mistake(place < bytes.count ? "expected \(character)" : "truncated where \(character) is expected")
        }
    }
}

/// A writer that appends a flat JSON object of strings, integers and booleans to a byte buffer, without a copy.
struct JSONLineWriter {
    private var isFirst = true

    mutating func add(_ key: StaticString, _ value: String, to buffer: inout [UInt8]) {
        add(key, to: &buffer)
        Self.quote(value, to: &buffer)
    }

    mutating func add(_ key: StaticString, _ value: Int, to buffer: inout [UInt8]) {
        add(key, to: &buffer)
        if value < 0 { buffer.append(UInt8(ascii: "-")) }
        // Digits are written last to first and then reversed, since a string of the number would be allocated.
        let start = buffer.count
        var rest = value.magnitude
        repeat {
            buffer.append(UInt8(ascii: "0") + UInt8(rest % 10))
            rest /= 10
        } while rest > 0
        buffer[start...].reverse()
    }

    mutating func add(_ key: StaticString, _ value: Bool, to buffer: inout [UInt8]) {
        add(key, to: &buffer)
        Self.append(value ? "true" : "false", to: &buffer)
    }

    func end(_ buffer: inout [UInt8]) { Self.append(isFirst ? "{}\n" : "}\n", to: &buffer) }

    private mutating func add(_ key: StaticString, to buffer: inout [UInt8]) {
        Self.append(isFirst ? "{\"" : ",\"", to: &buffer)
        isFirst = false
        Self.append(key, to: &buffer)
        Self.append("\":", to: &buffer)
    }

    private static func append(_ text: StaticString, to buffer: inout [UInt8]) {
        text.withUTF8Buffer { buffer.append(contentsOf: $0) }
    }

    private static func quote(_ text: String, to buffer: inout [UInt8]) {
        buffer.append(UInt8(ascii: "\""))
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"):
                buffer.append(UInt8(ascii: "\\"))
                buffer.append(byte)
            case 0..<0x20, 0x7f:
                append("\\u00", to: &buffer)
                for digit in [byte >> 4, byte & 15] {
                    buffer.append(digit + (digit < 10 ? UInt8(ascii: "0") : UInt8(ascii: "a") - 10))
                }
            default: buffer.append(byte)
            }
        }
        buffer.append(UInt8(ascii: "\""))
    }
}
