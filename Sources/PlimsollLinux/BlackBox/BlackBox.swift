#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
public import Plimsoll

extension ResourceManager {
    /// Records the last ten minutes of this manager in a file that outlives the process, for `plimsoll autopsy`: readings,
    /// levels, reports, and the names and sizes of registered purgeables. Call once, before `run()`.
    ///
    /// The file has 255 KiB, stays mapped, and is for its owner alone (mode 0600). A turn of the loop writes to memory
    /// only, so that the record is whole after any kill. What the previous run has left is kept beside the file under the
    /// same name and `.previous`.
    ///
    /// Choose a directory on a tmpfs that outlives the process, such as `$RUNTIME_DIRECTORY`. On a disk a write to a page
    /// that is being written out may block the loop, as the file system decides. Do not truncate the file while the
    /// process runs: the kernel then ends the process with SIGBUS.
    ///
    /// - Parameter path: path of the file, which is made if needed.
    /// - Returns: one sentence on how the previous run ended, if it did not end in good order; else `nil`.
    /// - Throws: An error that names the file and the reason: it belongs to a living process, is no black box, or cannot
    ///   be made.
    @discardableResult
    public func keepBlackBox(at path: String) throws -> String? {
        // A source of its own: a reading of the manager's would use up what was announced.
        let kills = try? LinuxPressureSource(options: .init(usesTriggers: false), kernel: HostKernel()).read(at: .zero)
            .ownKills
        let box = try BoxFile(path, kernel: HostStateKernel(), kills: kills)
        let writer = BoxContents.Writer(
            process: getpid(), program: BoxFile.program, version: Version.current, boot: BoxFile.boot,
            started: parts.time.wall())
        record(in: BoxRecorder(box.memory, of: box, writer: writer))
        let end = box.previous.map { BoxVerdict($0) }
        parts.previousEnd = end?.kind
        return end.flatMap { $0.kind == .clean ? nil : $0.sentence }
    }
}
#endif
