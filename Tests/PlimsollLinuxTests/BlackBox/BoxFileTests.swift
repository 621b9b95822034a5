import Foundation
import Glibc
import Plimsoll
import Synchronization
import TestSupport
import Testing

@testable import PlimsollLinux

/// The file of a black box, on the real file system and on a disk that fails.
@Suite(.serialized, .timeLimit(.minutes(5))) struct BoxFileTests {
    let directory = TemporaryDirectory()
    private var path: String { directory.path + "/plimsoll.box" }

    /// Writes a record of one reading, and ends without notice. Returns the previous record.
    private func run(_ usage: ByteCount, kills: Int? = nil, boot: String = BoxFile.boot) throws -> BoxContents? {
        let box = try BoxFile(path, kernel: HostStateKernel(), kills: kills)
        var writer = BoxMemory.writer
        writer.boot = boot
        writer.write(to: box.memory)
        BoxContents.Sample.reading(at: 1, available: .mebibytes(256) - usage)
            .write(to: box.memory + BoxLayout.turns.place(1), sequence: 1)
        return box.previous
    }

    /// Begins a record, which has no readings. The lock is held for as long as the result lives.
    private static func begin(_ path: String) throws -> BoxRecorder {
        let box = try BoxFile(path, kernel: HostStateKernel())
        return BoxRecorder(box.memory, of: box, writer: BoxMemory.writer)
    }

    /// A record of one reading.
    private static var whole: [UInt8] {
        let memory = BoxMemory()
        BoxMemory.writer.write(to: memory.start)
        BoxContents.Sample.reading(at: 1, available: .zero).write(to: memory.start + BoxLayout.turns.place(1), sequence: 1)
        return memory.bytes
    }

    private func error(_ path: String? = nil, kernel: any StateKernel = HostStateKernel()) -> BoxFileError? {
        do throws(BoxFileError) { _ = try BoxFile(path ?? self.path, kernel: kernel) } catch { return error }
        return nil
    }

    @Test func `the next run finds the record, and keeps that record beside a new one`() throws {
        #expect(try run(.mebibytes(10)) == nil)
        let previous = try #require(try run(.mebibytes(20), kills: 3))
        #expect(previous.samples.map(\.usage) == [10 << 20] && previous.killsAtNextStart == 3)
        let kept = try BoxFile.read(BoxFile.previous(of: path))
        #expect(kept.contents == previous && !kept.isLiving)
        #expect(try BoxFile.read(path).contents.samples.map(\.usage) == [20 << 20])
        #expect(try run(.mebibytes(30), boot: "another")?.killsAtNextStart == nil)
        #expect(try BoxFile.read(BoxFile.previous(of: path)).contents.samples.map(\.usage) == [20 << 20])
        #expect(!BoxFile.boot.isEmpty)
        #expect(try run(.mebibytes(40), kills: 3)?.killsAtNextStart == nil, "the machine has started again since")
        let names = try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted()
        #expect(names == ["plimsoll.box", "plimsoll.box.previous"])
    }

    @Test func `only the owner may read the file, and all blocks are allocated`() throws {
        _ = try run(.zero)
        _ = try run(.zero)
        for file in [path, BoxFile.previous(of: path)] {
            var status = stat()
            #expect(lstat(file, &status) == 0 && status.st_mode & 0o777 == 0o600)
            #expect(status.st_size == BoxFile.size && Int(status.st_blocks) * 512 >= BoxFile.size)
        }
    }

    @Test func `no lock outlives a call, although a child that is being started may have the file`() throws {
        let kernel = StateDirectoryStripeTests.WatchedKernel()
        _ = try run(.zero)
        #expect(try !BoxFile.read(path, kernel: kernel).isLiving)
        #expect(kernel.state.withLock { $0.locks.isEmpty })
        try "foreign".write(toFile: path, atomically: true, encoding: .utf8)
        #expect(error(kernel: kernel) != nil)
        #expect(kernel.state.withLock { $0.locks.isEmpty })
        try FileManager.default.removeItem(atPath: path)
        do {
            let box = try BoxFile(path, kernel: kernel)
            #expect(kernel.state.withLock { $0.locks.count == 1 })
            withExtendedLifetime(box) {}
        }
        #expect(kernel.state.withLock { $0.locks.isEmpty })
    }

    @Test func `a record that a process still writes is read as the record of a living process`() throws {
        let box = try BoxFile(path, kernel: HostStateKernel())
        BoxMemory.writer.write(to: box.memory)
        #expect(try BoxFile.read(path).isLiving)
        #expect(error()?.isHeldByAnother == true)
        #expect(
            error()?.description
                == "cannot lock the black box \(path): another process keeps its record there; give each process a file of its own"
        )
        withExtendedLifetime(box) {}
    }

    @Test func `a process that ends while its record is read has ended as the record then says`() throws {
        let owner = Mutex<BoxRecorder?>(try Self.begin(path)), kernel = StateDirectoryStripeTests.WatchedKernel()
        kernel.afterRead.withLock { act in
            act = {
                let recorder = owner.withLock { owner in
                    defer { owner = nil }
                    return owner
                }
                recorder?.ended(.shutdown)
            }
        }
        let found = try BoxFile.read(path, kernel: kernel)
        #expect(!found.isLiving && found.contents.end == .shutdown)
    }

    @Test func `a process that starts while the record before is read is told with its own record`() throws {
        _ = try run(.mebibytes(10))
        let owner = Mutex<BoxRecorder?>(nil), kernel = StateDirectoryStripeTests.WatchedKernel(), path = path
        kernel.afterRead.withLock { act in
            act = { owner.withLock { $0 = try? Self.begin(path) } }
        }
        let found = try BoxFile.read(path, kernel: kernel)
        let hasBegun = owner.withLock { $0 != nil }
        #expect(hasBegun && found.isLiving && found.contents.samples.isEmpty)
    }

    @Test func `a reader that has the lock for a moment keeps no process from a record`() throws {
        let kernel = DiskKernel(directory: "/state")
        // A number that is no descriptor of this process, so mmap can't map the file.
        kernel.edit { $0.lastFile = 1 << 20 }
        // The first call opens the file, the second one locks.
        kernel.fail(2, .once, EWOULDBLOCK)
        let reason = try #require(error("/state/box", kernel: kernel))
        #expect(kernel.faultWasReached && reason.description.hasPrefix("cannot map"), "\(reason)")
    }

    @Test func `a process that has not written its header yet is no reason to remove the file`() throws {
        let box = try BoxFile(path, kernel: HostStateKernel())
        let refusal = #expect(throws: BoxFileError.self) { try BoxFile.read(path) }
        #expect(
            refusal?.description
                == "cannot read the black box \(path): a process has it and has written no record yet; try again")
        withExtendedLifetime(box) {}
    }

    @Test func `a file that is no black box is refused and stays`() throws {
        for text in ["notes", String(repeating: "x", count: BoxFile.size), String(repeating: "x", count: 5 * BoxFile.size)] {
            try Data(text.utf8).write(to: URL(fileURLWithPath: path))
            let refusal = error()
            #expect(refusal?.description.hasSuffix("remove the file, or choose another path") == true && refusal?.isHeldByAnother == false)
            #expect(try Data(contentsOf: URL(fileURLWithPath: path)) == Data(text.utf8))
            #expect(throws: BoxFileError.self) { try BoxFile.read(path) }
        }
        #expect(!FileManager.default.fileExists(atPath: BoxFile.previous(of: path)))
    }

    @Test func `T35 a record whose clearing a kill has cut short is no foreign file, and its copy stays`() throws {
        _ = try run(.mebibytes(10))
        _ = try run(.mebibytes(20))
        var bytes = try Data(contentsOf: URL(fileURLWithPath: path))
        bytes.replaceSubrange(0..<4096, with: Data(count: 4096))
        try bytes.write(to: URL(fileURLWithPath: path))
        #expect(try run(.mebibytes(30)) == nil)
        #expect(try BoxFile.read(path).contents.samples.map(\.usage) == [30 << 20])
        #expect(try BoxFile.read(BoxFile.previous(of: path)).contents.samples.map(\.usage) == [10 << 20])
        // A file of another size with such a beginning was never a black box.
        try (bytes + Data([1])).write(to: URL(fileURLWithPath: path))
        #expect(error()?.description.contains("it does not begin as one") == true)
    }

    @Test func `T35 a start after one that was killed at any call is not refused, and a copy of the record stays`() throws {
        let whole = Self.whole
        var killed = 0
        for call in 1...1000 {
            let kernel = DiskKernel(directory: "/state")
            kernel.put(whole, at: "/state/box")
            kernel.edit { $0.lastFile = 1 << 20 }
            kernel.fail(call, .forever, EIO)
            _ = error("/state/box", kernel: kernel)
            guard kernel.faultWasReached else { break }
            let next = kernel.reopened()
            next.edit { $0.lastFile = 1 << 20 }
            let reason = try #require(error("/state/box", kernel: next))
            #expect(reason.description.hasPrefix("cannot map"), "killed at call \(call): \(reason)")
            #expect(next.contents("/state/box.previous") == whole, "killed at call \(call)")
            killed += 1
        }
        #expect(killed > 100)
    }

    @Test func `a file that others may write, or that belongs to another user, is refused and stays`() throws {
        _ = try run(.zero)
        let bytes = try Data(contentsOf: URL(fileURLWithPath: path))
        for mode: mode_t in [0o620, 0o602] {
            chmod(path, mode)
            #expect(error()?.description.contains("it belongs to another user, or others may write to it") == true)
        }
        chmod(path, 0o600)
        #expect(error() == nil)
        try bytes.write(to: URL(fileURLWithPath: path))
        if geteuid() == 0 {
            chown(path, 65534, 65534)
            #expect(error()?.description.contains("it belongs to another user") == true)
        }
        #expect(try Data(contentsOf: URL(fileURLWithPath: path)) == bytes)
    }

    @Test func `a record of another format and a truncated record are kept, and a new record begins`() throws {
        for change in [{ (bytes: inout Data) in bytes[12] = 7 }, { $0.removeLast(5000) }] {
            _ = try run(.mebibytes(10))
            var bytes = try Data(contentsOf: URL(fileURLWithPath: path))
            change(&bytes)
            try bytes.write(to: URL(fileURLWithPath: path))
            #expect(try run(.mebibytes(20)) == nil)
            #expect(try Data(contentsOf: URL(fileURLWithPath: BoxFile.previous(of: path))) == bytes)
            #expect(try BoxFile.read(path).contents.samples.count == 1)
        }
    }

    @Test func `a directory, a FIFO, a link and a missing directory are refused with a remedy`() throws {
        try FileManager.default.createDirectory(atPath: directory.path + "/folder", withIntermediateDirectories: true)
        mkfifo(directory.path + "/fifo", 0o600)
        symlink("/etc/passwd", directory.path + "/link")
        #expect(error(directory.path + "/folder") != nil)
        #expect(error(directory.path + "/fifo")?.description.contains("not a regular file") == true)
        #expect(error(directory.path + "/link")?.description.contains("not a regular file") == true)
        #expect(error(directory.path + "/none/box")?.description.contains("the directory does not exist") == true)
    }

    @Test(arguments: [ENOSPC, EIO]) func `T35 with any failing call, the previous record is in one of both files`(failure: Int32) throws {
        let whole = Self.whole
        var failed = 0
        for call in 1...1000 {
            let kernel = DiskKernel(directory: "/state")
            kernel.put(whole, at: "/state/box")
            // A number that is no descriptor of this process, so mmap can't map the file.
            kernel.edit { $0.lastFile = 1 << 20 }
            kernel.fail(call, .once, failure, isShort: call % 2 == 1)
            // No call can map a file of this kernel, so there is always an error.
            let reason = try #require(error("/state/box", kernel: kernel))
            let copies = ["/state/box", "/state/box.previous"].compactMap(kernel.contents)
            #expect(copies.contains(whole), "call \(call): \(reason)")
            guard kernel.faultWasReached else {
                #expect(reason.description.hasPrefix("cannot map"))
                break
            }
            failed += 1
            if failure == ENOSPC, reason.description.hasPrefix("cannot write") {
                #expect(reason.description.hasSuffix("free 255 KiB, or choose another disk"))
            }
        }
        #expect(failed > 100)
    }
}
