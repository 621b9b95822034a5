import Glibc

/// Where every decision is written down, a line each: appended whole, so that nothing of it is lost with the process.
final class Journal {
    private let file: Int32
    private var buffer: [UInt8] = []
    private var isFailing = false
    /// The last line is there in part.
    private var isTorn = false

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

    /// - Returns: why it could not be written, the first time; `nil` from then on, until something could be.
    func write(_ record: AuditRecord) -> String? {
        guard file >= 0 else { return nil }
        buffer.removeAll(keepingCapacity: true)
        // What follows a torn line would be lost with it.
        if isTorn { buffer.append(UInt8(ascii: "\n")) }
        record.write(to: &buffer)
        let count = buffer.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) }
        if count == buffer.count {
            (isFailing, isTorn) = (false, false)
            return nil
        }
        if count > 0 { isTorn = true }
        defer { isFailing = true }
        return isFailing ? nil : "the journal can't be written: \(count < 0 ? String(cString: strerror(errno)) : "no space is left")"
    }
}
