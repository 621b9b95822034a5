import Glibc
import Plimsoll
import Testing

@testable import PlimsollSupervisor

@Suite(.serialized) struct CleanPagesTests {
    private let text = """
        5500-5600 r--p 00000000 fe:00 77 /usr/lib/libx.so
        Size:                  4 kB
        Rss:                  64 kB
        Anonymous:             0 kB
        Swap:                  0 kB
        VmFlags: rd mr mw me sd
        5600-5700 r-xp 00001000 fe:00 77 /usr/lib/lib with blanks.so (deleted)
        Rss:                 128 kB
        Anonymous:             0 kB
        5700-5800 r--p 00002000 fe:00 77 /usr/lib/relocated-and-then-protected.so
        Rss:                  64 kB
        Anonymous:             4 kB
        5800-5900 r--p 00002000 fe:00 77 /usr/lib/written-and-swapped-out.so
        Rss:                  64 kB
        Anonymous:             0 kB
        Swap:                  4 kB
        5900-5a00 rw-p 00003000 fe:00 77 /usr/lib/writable.so
        Rss:                  64 kB
        Anonymous:             0 kB
        5a00-5b00 r--s 00003000 fe:00 77 /usr/lib/shared.so
        Rss:                  64 kB
        5b00-5c00 r--p 00003000 fe:00 77 /usr/lib/not-touched.so
        Rss:                   0 kB
        5c00-5d00 r-xp 00000000 00:00 0 [vdso]
        Rss:                   4 kB
        5d00-5e00 r--p 00000000 00:00 0
        Rss:                   4 kB
        ffff-0 r--p zz
        """

    @Test func `only mappings that equal the file byte for byte are dropped`() {
        let found = CleanPages.mappings(in: Array(text.utf8))
        #expect(found.map(\.start) == [0x5500, 0x5600] && found.map(\.end) == [0x5600, 0x5700])
        #expect(found.map(\.resident) == [.kibibytes(64), .kibibytes(128)])
        #expect(CleanPages.mappings(in: []).isEmpty && CleanPages.mappings(in: Array("Rss: 4 kB\n:\n- -\n".utf8)).isEmpty)
    }

    /// Runs in a process of its own: each supervisor of another test drops such pages, too, once its units run.
    @Test func `K41 clean pages are dropped and read again, and written pages stay unchanged`() async {
        await #expect(processExitsWith: .success) {
            let path = "\(Workbench.directory)/plimsoll-clean-\(getpid())", size = 1 << 20
            let file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0o600)
            defer {
                close(file)
                unlink(path)
            }
            let bytes = [UInt8](repeating: 7, count: size)
            #expect(write(file, bytes, size) == size)
            func map() throws -> UnsafeMutableRawPointer {
                let start = try #require(mmap(nil, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0))
                for page in stride(from: 0, to: size, by: 4096) { #expect(start.load(fromByteOffset: page, as: UInt8.self) == 7) }
                return start
            }
            let clean = try map(), written = try map()
            defer {
                munmap(clean, size)
                munmap(written, size)
            }
            written.storeBytes(of: 9, toByteOffset: 8192, as: UInt8.self)
            // The state of relocated pages after the linker's work.
            mprotect(clean, size, PROT_READ)
            mprotect(written, size, PROT_READ)
            func mapping(_ start: UnsafeMutableRawPointer) throws -> CleanPages.Mapping? {
                CleanPages.mappings(in: try GroupText.read("/proc/self/smaps").get()).first { $0.start == UInt(bitPattern: start) }
            }
            #expect(try mapping(clean)?.resident == .mebibytes(1))
            #expect(CleanPages.release() >= .mebibytes(1))
            #expect(try mapping(clean) == nil)
            #expect(clean.load(fromByteOffset: 4096, as: UInt8.self) == 7 && written.load(fromByteOffset: 8192, as: UInt8.self) == 9)
            #expect(written.load(fromByteOffset: 0, as: UInt8.self) == 7)
        }
    }
}
