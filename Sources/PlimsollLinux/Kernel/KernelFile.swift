import Glibc

/// Memory that the kernel's text is read into. One a thread, made once.
final class TextBuffer {
    let bytes: UnsafeMutableBufferPointer<UInt8>

    /// The largest text read at each turn is `memory.stat`, about 2 KiB.
    init(capacity: Int = 8192) { bytes = .allocate(capacity: capacity) }
    deinit { bytes.deallocate() }
}

/// A control file kept open and read from its start each time, which costs a fifth of opening it anew.
final class KernelFile {
    let path: String
    private(set) var file: Int32 = -1
    /// Why the last read failed; `nil` if it did not.
    private(set) var failure: KernelError?

    private let kernel: any Kernel
    private let buffer: TextBuffer

    /// A file that is opened at the first read.
    init(_ path: String, _ kernel: any Kernel, _ buffer: TextBuffer) {
        self.path = path
        self.kernel = kernel
        self.buffer = buffer
    }

    deinit { close() }

    func close() {
        if file >= 0 { kernel.close(file) }
        file = -1
    }

    /// Leaves the file alone without closing it: its number belongs to somebody else now.
    func forget() { file = -1 }

    /// Whether it is open, or opens now.
    func open() -> Bool {
        if file >= 0 { return true }
        file = kernel.open(path, .reading)
        failure = file < 0 ? KernelError(number: -file) : nil
        return file >= 0
    }

    /// What `parse` makes of the text; `nil`, with `failure` set, if it can't be read or `parse` refuses it.
    ///
    /// A failed read is tried once more on the file opened anew: the group of that name may have been removed (`ENODEV`) and made again.
    func read<Value>(_ parse: (Span<UInt8>) -> Value?) -> Value? {
        for _ in 0..<2 {
            guard open() else { return nil }
            let count = kernel.read(file, from: 0, into: buffer.bytes)
            guard count >= 0 else {
                failure = KernelError(number: Int32(clamping: -count))
                close()
                continue
            }
            let text = UnsafeMutableBufferPointer(rebasing: buffer.bytes[..<wholeLines(count)])
            let value = parse(text.span)
            failure = value == nil ? .malformed : nil
            return value
        }
        return nil
    }

    /// A full buffer may have cut a number in two: its last line does not count.
    private func wholeLines(_ count: Int) -> Int {
        guard count >= buffer.bytes.count else { return count }
        var end = count
        while end > 0, buffer.bytes[end - 1] != KernelText.newline { end -= 1 }
        return end
    }
}

extension Kernel {
    /// All of a file whose length isn't known, at most 16 MiB: `mountinfo`, `cgroup.procs`.
    func contents(of path: String) -> Result<[UInt8], KernelError> {
        let file = open(path, .reading)
        guard file >= 0 else { return .failure(KernelError(number: -file)) }
        defer { close(file) }
        let piece = TextBuffer(capacity: 65536)
        var all: [UInt8] = []
        while all.count < 16 << 20 {
            let count = read(file, from: all.count, into: piece.bytes)
            if count < 0 { return .failure(KernelError(number: Int32(clamping: -count))) }
            if count == 0 { break }
            all.append(contentsOf: piece.bytes[..<count])
        }
        return .success(all)
    }

    /// Opens `path`, writes `bytes` in one call and closes it; `nil` if they were taken.
    func write(_ bytes: [UInt8], to path: String) -> KernelError? {
        let file = open(path, .writing)
        guard file >= 0 else { return KernelError(number: -file) }
        defer { close(file) }
        let count = bytes.withUnsafeBufferPointer { write(file, $0) }
        return count < 0 ? KernelError(number: Int32(clamping: -count)) : nil
    }
}
