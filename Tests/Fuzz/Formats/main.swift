import CFuzzer
import Glibc

/// A format: the code that reads the format, and the rules that hold for all input.
struct Format: Sendable {
    var name: String
    /// Reads the bytes. Ends the process if a rule does not hold. A trap of the code ends the process as well.
    var read: @Sendable ([UInt8]) -> Void
}

/// Ends the process, so that libFuzzer keeps the input.
func require(_ holds: Bool, _ rule: @autoclosure () -> String) {
    if holds { return }
    fatalError("broken: \(rule())")
}

// Set once, before the loop; libFuzzer calls on this thread only.
nonisolated(unsafe) var current = Format(name: "") { _ in }

let formats = stateFormats + spillFormats + kernelFormats + messageFormats + fileFormats
let arguments = CommandLine.arguments
guard arguments.count > 1, let chosen = formats.first(where: { $0.name == arguments[1] }) else {
    print(formats.map { (format: Format) in format.name }.joined(separator: "\n"))
    exit(arguments.count > 1 ? 64 : 0)
}
current = chosen
var rest: [UnsafeMutablePointer<CChar>?] = ([arguments[0]] + arguments.dropFirst(2)).map { strdup($0) } + [nil]
var count = Int32(rest.count - 1)
rest.withUnsafeMutableBufferPointer { buffer in
    var start = buffer.baseAddress
    exit(
        LLVMFuzzerRunDriver(&count, &start) { bytes, length in
            current.read(Array(UnsafeBufferPointer(start: bytes, count: length)))
            return 0
        })
}
