/// A parser of the mangled names of types that a closure's description has (docs/ABI/Mangling.rst of Swift).
///
/// The runtime has one as well, and ends the process where a name does not fit its context. So this one knows what
/// closures usually capture, and gives up on all else.
struct MangledName {
    private let types: TypeNames
    private var at: UInt64
    private let end: UInt64
    private var stack: [Part] = []

    private enum Part {
        case type(String)
        /// The `y` that begins a list of generic arguments, or is an empty tuple.
        case list
        /// The `_` after a tuple's first element.
        case first
    }

    /// Returns the type that the name at `address` stands for; `nil` if the name has a part that is not known.
    static func type(at address: UInt64, _ types: TypeNames) -> String? {
        guard let length = length(address, types) else { return nil }
        var name = MangledName(types: types, at: address, end: address + length)
        while name.at < name.end { guard name.step() else { return nil } }
        guard name.stack.count == 1, case .type(let type) = name.stack[0] else { return nil }
        return type
    }

    private init(types: TypeNames, at: UInt64, end: UInt64) { (self.types, self.at, self.end) = (types, at, end) }

    /// Bytes up to the zero that ends a name. References within have 4 or 8 bytes of any value.
    private static func length(_ start: UInt64, _ types: TypeNames) -> UInt64? {
        var length: UInt64 = 0
        while length < 1024, let byte: UInt8 = types.read(start + length) {
            switch byte {
            case 0: return length
            case 1...0x17: length += 5
            case 0x18...0x1f: length += 9
            default: length += 1
            }
        }
        return nil
    }

    private static let standard: [Character: String] = [
        "a": "Array", "b": "Bool", "D": "Dictionary", "d": "Double", "f": "Float", "h": "Set", "i": "Int",
        "J": "Character", "N": "ClosedRange", "n": "Range", "P": "UnsafePointer", "p": "UnsafeMutablePointer",
        "q": "Optional",
        "R": "UnsafeBufferPointer", "r": "UnsafeMutableBufferPointer", "S": "String", "s": "Substring", "u": "UInt",
        "V": "UnsafeRawPointer", "v": "UnsafeMutableRawPointer", "W": "UnsafeRawBufferPointer",
        "w": "UnsafeMutableRawBufferPointer",
    ]

    /// Takes the next part of the name. Returns false if the part is not known.
    private mutating func step() -> Bool {
        guard let character = next() else { return false }
        switch character {
        case "\u{1}", "\u{2}":
            guard let name = types.nameOfReference(at: at, isIndirect: character == "\u{2}") else { return false }
            at += 4
            stack.append(.type(name))
        case "S":
            guard let letter = next() else { return false }
            if letter == "g" { return replaceType { "Optional<\($0)>" } }
            guard let name = Self.standard[letter] else { return false }
            stack.append(.type(name))
        case "s":
            guard let name = identifier(), let kind = next(), "CVO".contains(kind) else { return false }
            stack.append(.type(name))
        case "y": stack.append(.list)
        case "G":
            let arguments = popTypes()
            guard case .list? = stack.popLast(), !arguments.isEmpty else { return false }
            return replaceType { "\($0)<\(arguments.joined(separator: ", "))>" }
        case "_":
            // A list of protocols ends with p; otherwise this is a tuple.
            if peek() == "p" {
                at += 1
                return true
            }
            stack.append(.first)
        case "t":
            let rest = popTypes()
            guard case .first? = stack.popLast(), case .type(let first)? = stack.popLast() else { return false }
            stack.append(.type("(\(([first] + rest).joined(separator: ", ")))"))
        case "p":
            // "yp": any value.
            guard case .list? = stack.popLast() else { return false }
            stack.append(.type("Any"))
        case "m": return replaceType { "\($0).Type" }
        case "c":
            guard let parameters = popTuple(), let result = popTuple() else { return false }
            stack.append(.type("\(parameters.hasPrefix("(") ? parameters : "(\(parameters))") -> \(result)"))
        case "I":
            // A function in lowered form, such as a closure within a closure: conventions up to the end.
            while let convention = next(), convention != "_" {}
            stack = [.type("function")]
        case "K", "Y":
            // Of a function: throws, asynchronous, sendable.
            return character == "K" || next().map { "abc".contains($0) } ?? false
        case "X":
            // A captured variable in a box of its own; a weak or unowned reference.
            return next().map { "bwou".contains($0) } ?? false
        case let digit where digit.isNumber:
            at -= 1
            guard let module = identifier(), let name = identifier(), let kind = next(), "CVO".contains(kind) else {
                return false
            }
            stack.append(.type("\(module).\(name)"))
        default: return false
        }
        return true
    }

    private func peek() -> Character? {
        guard at < end, let byte: UInt8 = types.read(at) else { return nil }
        return Character(Unicode.Scalar(byte))
    }

    private mutating func next() -> Character? {
        defer { at += 1 }
        return peek()
    }

    /// A length in decimal digits, and as many characters.
    private mutating func identifier() -> String? {
        var digits = ""
        while let digit = peek(), digit.isNumber {
            digits.append(digit)
            at += 1
        }
        guard let length = Int(digits), length > 0, length <= end - at else { return nil }
        return String((0..<length).compactMap { _ in next() })
    }

    private mutating func replaceType(_ change: (String) -> String) -> Bool {
        guard case .type(let type)? = stack.popLast() else { return false }
        stack.append(.type(change(type)))
        return true
    }

    /// The types above the last mark.
    private mutating func popTypes() -> [String] {
        var types: [String] = []
        while case .type(let type)? = stack.last {
            types.insert(type, at: 0)
            stack.removeLast()
        }
        return types
    }

    private mutating func popTuple() -> String? {
        switch stack.popLast() {
        case .type(let type): type
        case .list: "()"
        default: nil
        }
    }
}
