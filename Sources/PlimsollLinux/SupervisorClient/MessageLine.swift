#if canImport(Glibc) && !PLIMSOLL_INERT
/// One line between a supervisor and a service: a sequence number, a verb and fields, in ASCII, separated by spaces and
/// ended by a newline.
///
///     7 caches bytes=1048576 reclaimable=524288
///
/// The format is simple enough for a stateless parser: nothing is quoted, nothing nests. Lines with unknown verbs, and
/// unknown fields, are skipped, so that either side may be newer.
package struct MessageLine: Sendable, Hashable {
    /// The longest line, newline included.
    package static let maximumLength = 4096
    /// Maximum number of fields in a line.
    static let maximumFields = 16
    /// The protocol version used here.
    package static let version = 1

    /// Sequence number. Grows by one a line, from 1, in each direction.
    package var sequence: UInt64
    package var verb: String
    private var fields: [(name: String, value: String)] = []

    package init(_ sequence: UInt64, _ verb: String, _ fields: KeyValuePairs<String, String?> = [:]) {
        self.sequence = sequence
        self.verb = verb
        self.fields = fields.compactMap { name, value in value.map { (name, $0) } }
    }

    /// The line, newline included.
    package var encoded: [UInt8] {
        var text = "\(sequence) \(verb)"
        for (name, value) in fields { text += " \(name)=\(value)" }
        return Array((text + "\n").utf8)
    }

    package static func == (left: MessageLine, right: MessageLine) -> Bool { left.encoded == right.encoded }
    package func hash(into hasher: inout Hasher) { hasher.combine(encoded) }

    // MARK: Reading

    /// Parses the line in `bytes`, without its newline.
    package init(_ bytes: some RandomAccessCollection<UInt8>) throws(MessageError) {
        guard bytes.count < Self.maximumLength else { throw .tooLong }
        guard bytes.allSatisfy({ 0x20...0x7e ~= $0 }) else { throw .notText }
        let parts = bytes.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
        guard parts.count >= 2, let sequence = Self.number(parts[0]), sequence > 0 else { throw .noSequence }
        guard Self.isName(parts[1]) else { throw .noVerb }
        guard parts.count - 2 <= Self.maximumFields else { throw .tooManyFields }
        self.sequence = sequence
        verb = String(decoding: parts[1], as: UTF8.self)
        for part in parts.dropFirst(2) {
            guard let sign = part.firstIndex(of: UInt8(ascii: "=")), Self.isName(part[..<sign]) else { throw .noField }
            let name = String(decoding: part[..<sign], as: UTF8.self)
            // With two values for a field, each side might use a different one.
            guard !fields.contains(where: { $0.name == name }) else { throw .duplicateField(name) }
            fields.append((name, String(decoding: part[part.index(after: sign)...], as: UTF8.self)))
        }
    }

    /// Returns the value of a required field.
    func text(_ name: String) throws(MessageError) -> String {
        guard let value = fields.first(where: { $0.name == name })?.value else { throw .missing(name) }
        return value
    }

    /// Returns a number within `range`.
    func number(_ name: String, in range: ClosedRange<Int>) throws(MessageError) -> Int {
        guard let number = Self.number(try text(name).utf8), let value = Int(exactly: number), range.contains(value)
        else { throw .invalid(name) }
        return value
    }

    func has(_ name: String) -> Bool { fields.contains { $0.name == name } }

    func bytes(_ name: String) throws(MessageError) -> Int { try number(name, in: 0...1 << 60) }

    /// Returns a time of at most a day.
    func milliseconds(_ name: String) throws(MessageError) -> Duration {
        .milliseconds(try number(name, in: 0...86_400_000))
    }

    func flag(_ name: String) throws(MessageError) -> Bool {
        switch try text(name) {
        case "yes": return true
        case "no": return false
        default: throw .invalid(name)
        }
    }

    func word<Word: RawRepresentable<String>>(_ name: String, _ type: Word.Type = Word.self) throws(MessageError)
        -> Word
    {
        guard let word = Word(rawValue: try text(name)) else { throw .invalid(name) }
        return word
    }

    /// Parses digits only, without a sign and without a leading zero. Returns `nil` for anything else and for numbers
    /// above 64 bits.
    static func number(_ digits: some Collection<UInt8>) -> UInt64? {
        guard let first = digits.first, digits.count == 1 || first != UInt8(ascii: "0") else { return nil }
        var value: UInt64 = 0
        for digit in digits {
            guard UInt8(ascii: "0")...UInt8(ascii: "9") ~= digit else { return nil }
            let (tens, overflow) = value.multipliedReportingOverflow(by: 10)
            let (sum, carry) = tens.addingReportingOverflow(UInt64(digit - UInt8(ascii: "0")))
            if overflow || carry { return nil }
            value = sum
        }
        return value
    }

    private static func isName(_ bytes: some Collection<UInt8>) -> Bool {
        1...32 ~= bytes.count
            && bytes.allSatisfy { UInt8(ascii: "a")...UInt8(ascii: "z") ~= $0 || $0 == UInt8(ascii: "-") }
    }
}

/// The reason that a line is rejected.
package enum MessageError: Error, Sendable, Hashable {
    /// 4096 bytes or more without a newline.
    case tooLong
    /// A byte that is not printable ASCII.
    case notText
    /// The line does not begin with a number of 1 or more.
    case noSequence
    /// The second word is not a verb: 1 to 32 lowercase letters and hyphens.
    case noVerb
    case tooManyFields
    /// A word after the verb is not of the form `name=value`.
    case noField
    case duplicateField(String)
    /// A required field is missing.
    case missing(String)
    /// A field whose value is of the wrong kind or out of range.
    case invalid(String)
}

extension MessageError: CustomStringConvertible {
    package var description: String {
        switch self {
        case .tooLong: "a line of more than \(MessageLine.maximumLength) bytes"
        case .notText: "a line with other bytes than printable ASCII"
        case .noSequence: "a line that does not begin with its number"
        case .noVerb: "a line without a verb"
        case .tooManyFields: "a line of more than \(MessageLine.maximumFields) fields"
        case .noField: "a word that is not name=value"
        case .duplicateField(let name): "the field \(name) twice"
        case .missing(let name): "no field \(name)"
        case .invalid(let name): "a value of \(name) that is not allowed"
        }
    }
}
#endif
