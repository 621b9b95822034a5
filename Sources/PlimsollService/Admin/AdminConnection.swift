#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll

/// One client of an admin endpoint: input buffer, pending answer and deadlines.
///
/// Only the endpoint's thread uses a connection. The line buffer is allocated once and reused for the next client.
final class AdminConnection {
    /// Identifier of the client; 0 while closed. Never used twice.
    private(set) var id: UInt64 = 0
    private(set) var file: Int32 = -1
    private var inbox: [UInt8]
    private var count = 0
    private var outbox: ArraySlice<UInt8> = []
    private let bounds: AdminEndpoint.Bounds

    /// True while a change of this client is being carried out.
    var isBusy = false
    /// Set while the client watches: the interval between answers, and the due time of the next answer.
    var watch: (every: Duration, due: Duration)?
    /// True after the client has shut down the sending side.
    private(set) var isAtEnd = false
    /// Start times of the current silence, of an incomplete line, and of a pending answer.
    private var quietSince = Duration.zero, lineSince: Duration?, owedSince = Duration.zero

    init(_ bounds: AdminEndpoint.Bounds) {
        self.bounds = bounds
        inbox = [UInt8](repeating: 0, count: bounds.line)
    }

    deinit { close() }

    var isOpen: Bool { file >= 0 }

    func open(_ id: UInt64, _ file: Int32, at now: Duration) {
        (self.id, self.file) = (id, file)
        (count, outbox, lineSince, watch) = (0, [], nil, nil)
        (isBusy, isAtEnd) = (false, false)
        quietSince = now
    }

    func close() {
        if file >= 0 { Glibc.close(file) }
        (id, file, outbox) = (0, -1, [])
    }

    // MARK: Pending work

    /// Events to poll for. The kernel reports a hang-up in any case.
    var events: Int16 {
        if !outbox.isEmpty { return Int16(POLLOUT) }
        return isBusy || isAtEnd || hasLine ? 0 : Int16(POLLIN)
    }

    /// True if a request can be carried out now.
    var isReady: Bool { outbox.isEmpty && !isBusy && hasLine }

    /// True if no work is left for this client.
    var isDone: Bool { outbox.isEmpty && !isBusy && isAtEnd && !hasLine && watch == nil }

    /// True if the input ended in the middle of a line.
    var hasRest: Bool { count > 0 && !hasLine }

    enum Due { case answer, request, idle, watch }

    /// The next timed event and the time when this event is due.
    var due: (Due, Duration)? {
        if !outbox.isEmpty { return (.answer, owedSince + bounds.answer) }
        if isBusy { return nil }
        if let lineSince { return (.request, lineSince + bounds.request) }
        if let watch { return (.watch, watch.due) }
        return (.idle, quietSince + bounds.idle)
    }

    // MARK: Reading

    private var hasLine: Bool { inbox[..<count].contains(UInt8(ascii: "\n")) }

    enum Arrival { case bytes, nothing, gone, tooLong }

    /// Reads available bytes, as far as the buffer has room.
    func read(at now: Duration) -> Arrival {
        let taken = inbox.withUnsafeMutableBytes {
            recv(file, $0.baseAddress! + count, $0.count - count, Int32(MSG_DONTWAIT))
        }
        if taken < 0 { return errno == EAGAIN || errno == EINTR ? .nothing : .gone }
        isAtEnd = taken == 0
        count += taken
        if hasLine {
            lineSince = nil
        } else if isAtEnd {
            lineSince = nil
        } else if count == inbox.count {
            return .tooLong
        } else if count > 0 {
            lineSince = lineSince ?? now
        }
        return .bytes
    }

    /// Removes the next complete line from the buffer and passes the line, without the newline, to `body`.
    func nextLine(at now: Duration, _ body: (ArraySlice<UInt8>) -> Void) {
        guard let end = inbox[..<count].firstIndex(of: UInt8(ascii: "\n")) else { return }
        quietSince = now
        body(inbox[..<end])
        inbox.withUnsafeMutableBytes { inbox in
            _ = memmove(inbox.baseAddress!, inbox.baseAddress! + end + 1, count - end - 1)
        }
        count -= end + 1
        lineSince = count > 0 && !hasLine && !isAtEnd ? now : nil
    }

    // MARK: Writing

    /// Sends `line`. Bytes that the kernel has no room for stay pending. Returns false if the client has gone.
    func send(_ line: [UInt8], at now: Duration) -> Bool {
        outbox = line[...]
        owedSince = now
        return flush(at: now)
    }

    /// Sends pending bytes. Returns false if the client has gone.
    func flush(at now: Duration) -> Bool {
        while !outbox.isEmpty {
            let taken = outbox.withUnsafeBytes {
                Glibc.send(file, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
            }
            if taken < 0, errno == EINTR { continue }
            if taken < 0 { return errno == EAGAIN }
            outbox = outbox.dropFirst(taken)
        }
        outbox = []
        quietSince = now
        return true
    }

    /// True if an answer is pending, being computed, or yet to be computed.
    var isOwed: Bool { !outbox.isEmpty || isBusy || hasLine }
}
#endif
