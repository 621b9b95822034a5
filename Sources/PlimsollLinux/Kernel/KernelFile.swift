#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc

/// The buffer for the kernel's text. One a thread, made once.
final class TextBuffer {
    let bytes: UnsafeMutableBufferPointer<UInt8>

    /// Creates a buffer. The largest text read at each turn is `memory.stat`, about 2 KiB.
    init(capacity: Int = 8192) { bytes = .allocate(capacity: capacity) }
    deinit { bytes.deallocate() }
}

/// A control file kept open and read from the start each time, which costs a fifth of reopening.
final class KernelFile {
    let path: String
    private(set) var file: Int32 = -1
    /// The error of the last read; `nil` on success.
    private(set) var failure: KernelError?
    /// True once a read has found that the group was removed (`ENODEV`), even if the path leads to another group by
    /// now. Watches and events of the removed group are gone.
    private(set) var hasLostGroup = false

    private let kernel: any Kernel
    private let buffer: TextBuffer

    /// Creates a file that is opened at the first read.
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

    /// Forgets the descriptor without a close: the number belongs to another file now.
    func forget() { file = -1 }

    /// Opens the file if needed. Returns true on success.
    func open() -> Bool {
        if file >= 0 { return true }
        file = kernel.open(path, .reading)
        failure = file < 0 ? KernelError(number: -file) : nil
        return file >= 0
    }

    /// Reads the text and returns the result of `parse`. Returns `nil`, with `failure` set, if the file can't be read
    /// or `parse` fails.
    ///
    /// A failed read is retried once after reopening. The group of that name may have been removed (`ENODEV`) and made
    /// again.
    func read<Value>(_ parse: (Span<UInt8>) -> Value?) -> Value? {
        for _ in 0..<2 {
            let isKept = file >= 0
            guard open() else { return nil }
            let count = kernel.read(file, from: 0, into: buffer.bytes)
            guard count >= 0 else {
                failure = KernelError(number: Int32(clamping: -count))
                if count == -Int(ENODEV) { hasLostGroup = true }
                // Some code closed all files of the process. The number may belong to a socket by now.
                if isKept, count == -Int(EBADF) || count == -Int(ESPIPE) { forget() } else { close() }
                continue
            }
            let text = UnsafeMutableBufferPointer(rebasing: buffer.bytes[..<wholeLines(count)])
            let value = parse(text.span)
            failure = value == nil ? .malformed : nil
            return value
        }
        return nil
    }

    /// Returns the length of the complete lines. A full buffer may have cut a number in two, so the last line does not
    /// count.
    private func wholeLines(_ count: Int) -> Int {
        guard count >= buffer.bytes.count else { return count }
        var end = count
        while end > 0, buffer.bytes[end - 1] != KernelText.newline { end -= 1 }
        return end
    }
}

extension Kernel {
    /// Reads all of a file of unknown length, at most 16 MiB: `mountinfo`, `cgroup.procs`.
    func contents(of path: String) -> Result<[UInt8], KernelError> {
        let file = open(path, .reading)
        guard file >= 0 else { return .failure(KernelError(number: -file)) }
        defer { close(file) }
        let chunk = TextBuffer(capacity: 65536)
        var all: [UInt8] = []
        while all.count < 16 << 20 {
            let count = read(file, from: all.count, into: chunk.bytes)
            if count < 0 { return .failure(KernelError(number: Int32(clamping: -count))) }
            if count == 0 { break }
            all.append(contentsOf: chunk.bytes[..<count])
        }
        return .success(all)
    }

    /// Opens `path`, writes `bytes` in one call and closes the file. Returns the error, `nil` on success.
    func write(_ bytes: [UInt8], to path: String) -> KernelError? {
        let file = open(path, .writing)
        guard file >= 0 else { return KernelError(number: -file) }
        defer { close(file) }
        let count = bytes.withUnsafeBufferPointer { write(file, $0) }
        return count < 0 ? KernelError(number: Int32(clamping: -count)) : nil
    }
}
#endif
