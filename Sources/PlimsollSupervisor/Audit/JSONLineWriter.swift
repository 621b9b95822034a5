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
