import Glibc
import Plimsoll

/// The log of all decisions, one line each, written on a separate thread. A disk that doesn't answer delays no
/// decision.
final class Journal {
    private let writer: LineWriter?

    /// - Parameters:
    ///   - path: the file of the journal; `nil` for no journal.
    ///   - report: called on the writing thread when records can't be written, once until a write succeeds, and with the
    ///     number of dropped records.
    init(_ path: String?, report: @escaping @Sendable (String) -> Void = { _ in }) throws(SupervisorError) {
        guard let path else {
            writer = nil
            return
        }
        // Opens without waiting for the reader of a FIFO; the writing thread waits until the file accepts bytes.
        let file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0o600)
        guard file >= 0 else {
            let advice = errno == ENXIO ? "; a FIFO needs its reader first" : ""
            throw SupervisorError("cannot open the journal \(path): \(String(cString: strerror(errno)))\(advice)")
        }
        let writer = LineWriter(file, closesFile: true, isTorn: Self.isTorn(path)) { trouble in
            switch trouble {
            case .failed(let number): report("cannot write the journal: \(String(cString: strerror(number)))")
            case .dropped(let count):
                report("dropped \(count) records of the journal, because its file accepted no data for a while")
            }
            return nil
        }
        guard let writer else {
            close(file)
            throw SupervisorError(
                "cannot start a thread for the journal; check the limit of processes (pids.max, RLIMIT_NPROC)"
            )
        }
        self.writer = writer
    }

    deinit { writer?.finish(within: .zero) }

    func write(_ record: AuditRecord) {
        guard let writer else { return }
        var line: [UInt8] = []
        line.reserveCapacity(512)
        record.write(to: &line)
        writer.write(line)
    }

    /// Writes the remaining records, for at most `limit`.
    func finish(within limit: Duration) { writer?.finish(within: limit) }

    /// Returns true if a previous writer was killed in the middle of its last line.
    private static func isTorn(_ path: String) -> Bool {
        let file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard file >= 0 else { return false }
        defer { close(file) }
        var status = stat(), last: UInt8 = 0
        guard fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_size > 0 else { return false }
        return pread(file, &last, 1, status.st_size - 1) == 1 && last != UInt8(ascii: "\n")
    }
}
