#if canImport(Glibc) && !PLIMSOLL_INERT
/// Parsers of the kernel's text on raw bytes. No text traps; required parts are checked strictly, unknown parts are
/// ignored.
enum KernelText {
    static let newline = UInt8(ascii: "\n")
    static let space = UInt8(ascii: " ")

    /// Parses the digits at `position`, which moves past them; saturates at the largest number. Returns `nil` if there
    /// are none.
    @inline(__always)
    static func number(in text: Span<UInt8>, at position: inout Int) -> UInt64? {
        let start = position
        var value: UInt64 = 0
        while position < text.count {
            let digit = text[position] &- UInt8(ascii: "0")
            guard digit <= 9 else { break }
            let (tens, overflow) = value.multipliedReportingOverflow(by: 10)
            let (sum, carry) = tens.addingReportingOverflow(UInt64(digit))
            value = overflow || carry ? .max : sum
            position += 1
        }
        return position > start ? value : nil
    }

    /// Returns true if the text at `range` equals `key`.
    @inline(__always)
    static func matches(_ text: Span<UInt8>, _ range: Range<Int>, _ key: StaticString) -> Bool {
        guard range.count == key.utf8CodeUnitCount else { return false }
        let start = key.utf8Start
        for offset in 0..<range.count where text[range.lowerBound + offset] != start[offset] { return false }
        return true
    }

    /// Calls `body` with each line of the form `key number`, `key: number` or `key: number kB` (scaled to bytes); skips
    /// other lines.
    @inline(__always)
    static func forEachPair(in text: Span<UInt8>, _ body: (Range<Int>, Int) -> Void) {
        var position = 0
        while position < text.count {
            let start = position
            while position < text.count, text[position] != space, text[position] != newline { position += 1 }
            var end = position
            if end > start, text[end - 1] == UInt8(ascii: ":") { end -= 1 }
            while position < text.count, text[position] == space { position += 1 }
            if end > start, let value = number(in: text, at: &position), let unit = unit(in: text, at: position) {
                body(
                    start..<end,
                    Int(clamping: value.multipliedReportingOverflow(by: unit).overflow ? .max : value * unit))
            }
            while position < text.count, text[position] != newline { position += 1 }
            position += 1
        }
    }

    /// Returns 1 at the end of a line, 1024 before ` kB`, `nil` for anything else.
    @inline(__always)
    private static func unit(in text: Span<UInt8>, at position: Int) -> UInt64? {
        if position >= text.count || text[position] == newline { return 1 }
        guard position + 3 <= text.count, matches(text, position..<position + 3, " kB") else { return nil }
        return position + 3 == text.count || text[position + 3] == newline ? 1024 : nil
    }

    /// Parses the single number of a file such as `memory.current`, in bytes; returns `nil` for anything else.
    static func bytes(_ text: Span<UInt8>) -> Int? {
        var position = 0
        guard let value = number(in: text, at: &position), isEnd(text, position) else { return nil }
        return Int(clamping: value)
    }

    /// The number that represents no limit.
    static let unlimited = Int.max

    /// Parses the limit in `memory.max`, `memory.high` or `memory.limit_in_bytes`. Returns `unlimited` for `max` and
    /// for version 1's 0x7ffffffffffff000.
    static func limit(_ text: Span<UInt8>) -> Int? {
        if text.count >= 3, matches(text, 0..<3, "max"), isEnd(text, 3) { return unlimited }
        guard let value = bytes(text) else { return nil }
        return value > 1 << 62 ? unlimited : value
    }

    private static func isEnd(_ text: Span<UInt8>, _ position: Int) -> Bool {
        position >= text.count || text[position] == newline
    }
}

/// Builds the short texts for control files, without a `String`: the texts may be needed when memory is short.
struct TextWriter {
    private var bytes: InlineArray<96, UInt8> = .init(repeating: 0)
    private(set) var count = 0

    mutating func add(byte: UInt8) {
        guard count < bytes.count else { return }
        bytes[count] = byte
        count += 1
    }

    mutating func add(_ text: StaticString) {
        for offset in 0..<text.utf8CodeUnitCount { add(byte: text.utf8Start[offset]) }
    }

    /// Adds a number in decimal; negative numbers as zero.
    mutating func add(_ number: Int) {
        let number = max(0, number)
        var divisor = 1
        while number / divisor >= 10 { divisor *= 10 }
        while divisor > 0 {
            add(byte: UInt8(ascii: "0") + UInt8(number / divisor % 10))
            divisor /= 10
        }
    }

    /// Writes the text to `file` in one call. Returns the error, `nil` on success.
    func write(to file: Int32, _ kernel: any Kernel) -> KernelError? {
        let taken = withUnsafeTemporaryAllocation(of: UInt8.self, capacity: bytes.count) { copy in
            for offset in 0..<count { copy[offset] = bytes[offset] }
            return kernel.write(file, UnsafeBufferPointer(rebasing: copy[..<count]))
        }
        return taken < 0 ? KernelError(number: Int32(clamping: -taken)) : nil
    }
}
#endif
