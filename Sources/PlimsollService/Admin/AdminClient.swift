#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll
import PlimsollLinux

/// A connection to an admin endpoint. Blocking. Not thread-safe.
package final class AdminClient {
    package let path: String
    /// The process of the endpoint, as reported by the kernel.
    package let process: Int32
    private let file: Int32
    private let timeLimit: Duration
    /// Longest wait for the answer to the last request.
    private var patience: Duration
    private var inbox: [UInt8] = []
    private let json = AdminJSON()

    /// Longest accepted answer in bytes: enough for a manager of a hundred thousand caches.
    private static let longestAnswer = 64 << 20

    /// Connects to the socket at `path`.
    ///
    /// - Parameters:
    ///   - path: path of the socket.
    ///   - timeLimit: longest wait for each answer, unless the service itself may take longer to carry out the request
    ///     (`AdminRequest.Command.patience`).
    /// - Throws: `AdminError` if no process listens there, or only other users may connect.
    package init(path: String, timeLimit: Duration = .seconds(10)) throws(AdminError) {
        do { (file, process) = try PrivateSocket.connect(to: path) } catch { throw AdminError(error) }
        (self.path, self.timeLimit, patience) = (path, timeLimit, timeLimit)
    }

    deinit { close(file) }

    /// The file descriptor of the connection, to poll for answers to `watch`. Also becomes readable when the
    /// connection ends.
    package var descriptor: Int32 { file }

    /// True if `nextLine()` returns without a wait: an answer came together with the one before, and `descriptor` may
    /// not be readable.
    package var hasLine: Bool { inbox.contains(UInt8(ascii: "\n")) }

    /// Sends a request and waits for the answer.
    ///
    /// - Throws: `AdminError` if no answer comes in time or the answer is unreadable. An answer that refuses the
    ///   request does not throw.
    package func answer(to request: AdminRequest) throws(AdminError) -> AdminAnswer { try decode(line(for: request)) }

    /// Sends a request and returns the answer as a line, without the newline.
    package func line(for request: AdminRequest) throws(AdminError) -> String {
        patience = max(timeLimit, request.command.patience)
        try send(json.line(request))
        return try nextLine()
    }

    package func decode(_ line: String) throws(AdminError) -> AdminAnswer {
        do { return try json.answer(line.utf8) } catch {
            throw AdminError(
                .silent,
                "cannot read the answer of process \(process) at \(path), which may be another version or no admin socket: \(error)"
            )
        }
    }

    package func send(_ bytes: [UInt8]) throws(AdminError) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let taken = rest.withUnsafeBytes { Glibc.send(file, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            if taken < 0, errno == EINTR { continue }
            // An endpoint that refuses sends the reason before it closes. The reason is read next.
            if taken < 0 { return }
            rest = rest.dropFirst(taken)
        }
    }

    /// Waits for the next answer. After `watch`, answers follow without another request.
    package func nextLine() throws(AdminError) -> String {
        let deadline = Timekeeper.machine.elapsed() + patience
        var searched = 0
        while true {
            if let end = inbox[searched...].firstIndex(of: UInt8(ascii: "\n")) {
                defer { inbox.removeSubrange(...end) }
                return String(decoding: inbox[..<end], as: UTF8.self)
            }
            searched = inbox.count
            guard inbox.count < Self.longestAnswer else {
                throw AdminError(
                    .silent, "process \(process) at \(path) answered with more than \(Self.longestAnswer) bytes")
            }
            try receive(by: deadline)
        }
    }

    private func receive(by deadline: Duration) throws(AdminError) {
        let left = deadline - Timekeeper.machine.elapsed()
        var ready = pollfd(fd: file, events: Int16(POLLIN), revents: 0)
        let count = poll(&ready, 1, Int32(clamping: max(0, left.inNanoseconds / 1_000_000)))
        if count < 0, errno == EINTR { return }
        guard count > 0 else {
            throw AdminError(
                .silent,
                "process \(process) at \(path) has not answered for \(patience) and may be suspended; try again once it runs"
            )
        }
        let taken = withUnsafeTemporaryAllocation(byteCount: 65536, alignment: 16) { buffer in
            let taken = recv(file, buffer.baseAddress, buffer.count, 0)
            if taken > 0 { inbox.append(contentsOf: UnsafeRawBufferPointer(rebasing: buffer[..<taken])) }
            return taken
        }
        if taken == 0 || (taken < 0 && errno != EINTR) {
            throw AdminError(.silent, "process \(process) closed the connection at \(path)")
        }
    }
}
#endif
