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
