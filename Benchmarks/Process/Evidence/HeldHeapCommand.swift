import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollHeap
import PlimsollTesting

/// A process with a known heap, for censuses by other processes. Ends with standard input.
struct HeldHeapCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_held-heap", abstract: "Part of the tests of `plimsoll heap`.", shouldDisplay: false)

    @Option(help: "Objects of the most frequent kind.") var objects = 1000
    @Option(help: "Writes random words over free lists and headers of blocks, from that seed.") var corrupt: UInt64?

    @Option(help: "Mappings of 1 MiB, as for stacks of threads, made after all others.") var stacks = 0

    @Flag(help: "Takes a census, and measures what an array leads to.") var own = false

    func run() throws {
        let planted = PlantedHeap(objects)
        Output.line(JSONLine.encode(planted.truth))
        if own { try Self.countItself() }
        for _ in 0..<stacks { Self.makeStack() }
        if let corrupt { Self.corruptHeap(seed: corrupt) }
        // From here on no malloc: the heap may be broken.
        var byte: UInt8 = 0
        withUnsafeBytes(of: UInt8(ascii: "\n")) { _ = write(STDOUT_FILENO, $0.baseAddress, 1) }
        while read(STDIN_FILENO, &byte, 1) > 0 {}
        withExtendedLifetime(planted) { _exit(0) }
    }

    /// Prints the census, and the bytes of an array of 100,000.
    private static func countItself() throws {
        Output.line(JSONLine.encode(try HeapCensus.take()))
        let bytes = [UInt8](repeating: 1, count: 100_000)
        let word = UInt64(UInt(bitPattern: unsafeBitCast(bytes, to: UnsafeRawPointer.self)))
        Output.line("\(HeapCensus.bytes(reachedFrom: [[word]], atMost: 1000)?.first ?? 0)")
        withExtendedLifetime(bytes) {}
    }

    /// Makes a mapping behind a page that no access is allowed to.
    private static func makeStack() {
        let size = 1 << 20, page = 4096
        let place = mmap(nil, page + size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        guard let place, place != MAP_FAILED else { return }
        mprotect(place + page, size, PROT_READ | PROT_WRITE)
    }

    /// Breaks the links of freed blocks, and sizes in the headers of all.
    private static func corruptHeap(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        // Never freed: malloc would notice the damage and end the process.
        let blocks = UnsafeMutableBufferPointer<UnsafeMutableRawPointer>.allocate(capacity: 4000)
        for index in blocks.indices {
            blocks.initializeElement(at: index, to: malloc(Int.random(in: 24...3000, using: &random))!)
        }
        for index in stride(from: 0, to: blocks.count, by: 2) { free(blocks[index]) }
        for _ in 0..<400 {
            let block = blocks[Int.random(in: 0..<blocks.count, using: &random)]
            let near = UInt64(UInt(bitPattern: blocks[Int.random(in: 0..<blocks.count, using: &random)]))
            // Words that look like links and sizes lead a walk further astray than random ones.
            let word: UInt64 =
                switch random.next() % 6 {
                case 0: random.next()
                case 1: near
                case 2: near >> 12
                case 3: random.next() & 0xffff
                case 4: 0
                default: 1 << 40
                }
            // The header, and the links of a free block.
            let place = Int(random.next() % 4) * 8 - 16
            block.storeBytes(of: word, toByteOffset: place, as: UInt64.self)
        }
    }
}
