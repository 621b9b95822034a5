#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll
import Synchronization

/// The mapped file of a black box.
///
/// The contents of the previous run are copied to a second file before this run overwrites them, so a kill in between
/// loses nothing. The file is locked (`flock`) until the run or the process ends.
package final class BoxFile: Sendable {
    /// The contents that the previous run has left; `nil` if there are none, or none that can be read.
    let previous: BoxContents?
    private let file: Int32
    private let kernel: any StateKernel
    /// The mapping. Unchecked: `BoxRecorder` says who writes where.
    nonisolated(unsafe) let memory: UnsafeMutableRawPointer

    /// Size of the file, in bytes.
    package static let size = BoxLayout.size

    /// Name of the file with the contents of the previous run.
    package static func previous(of path: String) -> String { path + ".previous" }

    /// Opens, locks and clears the file at `path`.
    ///
    /// - Parameter kills: number of processes that the kernel has killed in this process's group; kept with the previous
    ///   contents.
    package init(_ path: String, kernel: any StateKernel, kills: Int? = nil) throws(BoxFileError) {
        let path = StateDirectory.absolute(path)
        let file = kernel.open(path, .locking)
        guard file >= 0 else { throw BoxFileError("open", path, -file) }
        var isLocked = false
        do throws(BoxFileError) {
            let held = Self.lock(file, kernel)
            guard held == 0 else { throw BoxFileError("lock", path, -held) }
            isLocked = true
            guard kernel.isOwn(file) else {
                throw BoxFileError(foreign: path, "it belongs to another user, or others may write to it")
            }
            previous = try Self.keepPrevious(file, path, kernel, kills)
            try Self.clear(file, path, kernel)
            guard
                let memory = mmap(nil, BoxLayout.size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0),
                memory != MAP_FAILED
            else { throw BoxFileError("map", path, errno) }
            self.memory = memory
        } catch {
            if isLocked { kernel.unlock(file) }
            kernel.close(file)
            throw error
        }
        // Best effort, within RLIMIT_MEMLOCK: else the pages may have been reclaimed when memory is short.
        mlock(memory, BoxLayout.size)
        // A forked child never writes.
        madvise(memory, BoxLayout.size, MADV_DONTFORK)
        (self.file, self.kernel) = (file, kernel)
    }

    deinit {
        munmap(memory, BoxLayout.size)
        kernel.unlock(file)
        kernel.close(file)
    }

    /// Takes the lock. Tries again for some milliseconds, because a reader has the lock for a moment (`isHeld`).
    private static func lock(_ file: Int32, _ kernel: any StateKernel) -> Int32 {
        let parker = Parker()
        for _ in 0..<8 {
            let result = kernel.lock(file)
            if result != -EWOULDBLOCK { return result }
            parker.park(atMost: .milliseconds(1))
        }
        return kernel.lock(file)
    }

    /// Copies the contents to the second file, and returns them.
    ///
    /// - Throws: An error if the file is none of a black box, or cannot be copied: then it stays as it is.
    private static func keepPrevious(
        _ file: Int32, _ path: String, _ kernel: any StateKernel, _ kills: Int?
    ) throws(BoxFileError) -> BoxContents? {
        var bytes = try contents(file, path, kernel)
        // A new file, or one that was cleared, at least from the front on, before a kill kept the header from being
        // written. The contents were copied before that.
        let front = bytes.count == BoxLayout.size ? bytes[..<BoxLayout.turns.offset] : bytes[...]
        guard front.contains(where: { $0 != 0 }) else { return nil }
        var contents: BoxContents?
        do throws(BoxContents.Damage) { contents = try BoxContents(bytes) } catch {
            if error.isForeign { throw BoxFileError(foreign: path, error.description) }
        }
        // A machine that has started again counts anew.
        if let kills, contents?.writer.boot == boot {
            contents?.killsAtNextStart = kills
            withUnsafeBytes(of: UInt32(clamping: kills + 1).littleEndian) {
                bytes.replaceSubrange(BoxLayout.killsAtNextStart..<BoxLayout.killsAtNextStart + 4, with: $0)
            }
        }
        let copy = previous(of: path), new = copy + "-new"
        let target = kernel.open(new, .replacing)
        guard target >= 0 else { throw BoxFileError("keep the previous record in", new, -target) }
        defer { kernel.close(target) }
        try write(bytes[...], to: target, new, kernel)
        let renamed = kernel.rename(new, to: copy)
        guard renamed == 0 else { throw BoxFileError("keep the previous record in", copy, -renamed) }
        return contents
    }

    /// Fills the file with zeros, from the front on. Blocks are allocated now: a page without one, on a full disk,
    /// would end the process with SIGBUS when written.
    private static func clear(_ file: Int32, _ path: String, _ kernel: any StateKernel) throws(BoxFileError) {
        let cut = kernel.truncate(file, to: BoxLayout.size)
        guard cut == 0 else { throw BoxFileError("make", path, -cut) }
        do throws(BoxFileError) {
            try write([UInt8](repeating: 0, count: BoxLayout.size)[...], to: file, path, kernel)
        } catch {
            // Whatever of the old contents is left is in the second file.
            _ = kernel.truncate(file, to: 0)
            throw error
        }
    }

    private static func write(
        _ bytes: ArraySlice<UInt8>, to file: Int32, _ path: String, _ kernel: any StateKernel
    ) throws(BoxFileError) {
        var offset = 0
        while offset < bytes.count {
            let count = bytes.dropFirst(offset).withUnsafeBytes { kernel.write(file, at: offset, $0) }
            guard count > 0 else { throw BoxFileError("write", path, count < 0 ? Int32(-count) : EIO) }
            offset += count
        }
    }

    // MARK: - Reading

    /// Reads the black box at `path`, which may be in use. True for `isLiving`: a living process writes there.
    package static func read(
        _ path: String, kernel: any StateKernel = HostStateKernel()
    ) throws(BoxFileError) -> (contents: BoxContents, isLiving: Bool) {
        let file = kernel.open(path, .reading)
        guard file >= 0 else { throw BoxFileError("read", path, -file) }
        defer { kernel.close(file) }
        var bytes: [UInt8], isLiving: Bool
        repeat {
            isLiving = isHeld(file, kernel)
            bytes = try contents(file, path, kernel)
            // Contents that were read before a writer began or ended belong to neither state.
        } while isHeld(file, kernel) != isLiving
        do throws(BoxContents.Damage) { return (try BoxContents(bytes), isLiving) } catch {
            // A writer clears the file before the header is written.
            if isLiving, error.isForeign { throw BoxFileError("read", path, EBUSY) }
            throw BoxFileError(foreign: path, error.description)
        }
    }

    /// Returns true if a process has the lock. Gives a lock back at once, as a process that starts may be waiting.
    private static func isHeld(_ file: Int32, _ kernel: any StateKernel) -> Bool {
        let held = kernel.lock(file)
        // Closing does not unlock a file that a child which is being started still has.
        if held == 0 { kernel.unlock(file) }
        return held == -EWOULDBLOCK
    }

    private static func contents(
        _ file: Int32, _ path: String, _ kernel: any StateKernel
    ) throws(BoxFileError) -> [UInt8] {
        let length = kernel.length(file)
        guard length >= 0 else { throw BoxFileError("read", path, Int32(-length)) }
        guard length <= 4 * BoxLayout.size else { throw BoxFileError(foreign: path, "it has \(length) bytes") }
        var bytes = [UInt8](repeating: 0, count: length)
        var offset = 0
        while offset < length {
            let count = bytes.withUnsafeMutableBytes {
                kernel.read(file, from: offset, into: UnsafeMutableRawBufferPointer(rebasing: $0[offset...]))
            }
            guard count > 0 else { throw BoxFileError("read", path, count < 0 ? Int32(-count) : EIO) }
            offset += count
        }
        return bytes
    }

    // MARK: - The writer

    /// Name of this program, without its directory.
    static var program: String {
        CommandLine.arguments.first?.split(separator: "/").last.map(String.init) ?? "?"
    }

    /// Identifier of this boot of the machine; empty if unreadable.
    static var boot: String {
        guard case .success(let bytes) = HostKernel().contents(of: "/proc/sys/kernel/random/boot_id") else { return "" }
        return String(decoding: bytes.prefix { $0 != KernelText.newline }, as: UTF8.self)
    }
}

/// The reason why no black box is kept.
package struct BoxFileError: Error, Sendable, Hashable, CustomStringConvertible {
    package let description: String
    /// True if another process keeps its black box there.
    package let isHeldByAnother: Bool

    init(_ call: String, _ path: String, _ number: Int32) {
        isHeldByAnother = number == EWOULDBLOCK
        let remedy =
            switch number {
            case EWOULDBLOCK: "another process keeps its record there; give each process a file of its own"
            case EBUSY: "a process has it and has written no record yet; try again"
            case ENOENT, ENOTDIR: "the directory does not exist; make it, or choose another path"
            case EACCES, EPERM, EROFS: "\(KernelError(number: number)); choose a directory that this user may write to"
            case ENOSPC, EDQUOT:
                "\(KernelError(number: number)); free \((BoxLayout.size + 1023) >> 10) KiB, or choose another disk"
            case EINVAL, ELOOP: "it is not a regular file; remove it, or choose another path"
            default: "\(KernelError(number: number))"
            }
        description = "cannot \(call) the black box \(path): \(remedy)"
    }

    init(foreign path: String, _ reason: String) {
        isHeldByAnother = false
        description = "cannot use \(path) as a black box: \(reason); remove the file, or choose another path"
    }
}
#endif
