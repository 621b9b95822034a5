import Glibc

/// Where every decision is written down, a line each: appended whole, so that nothing of it is lost with the process.
final class Journal {
    private let file: Int32
    private var buffer: [UInt8] = []

    /// - Parameter path: `nil` for nowhere.
    init(_ path: String?) throws(SupervisorError) {
        guard let path else {
            file = -1
            return
        }
        file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw SupervisorError("the journal \(path) can't be opened: \(String(cString: strerror(errno)))") }
        buffer.reserveCapacity(1024)
    }

    deinit { if file >= 0 { close(file) } }

    func write(_ record: AuditRecord) {
        guard file >= 0 else { return }
        buffer.removeAll(keepingCapacity: true)
        record.write(to: &buffer)
        _ = buffer.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) }
    }
}
