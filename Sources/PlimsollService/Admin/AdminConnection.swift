import Glibc
import Plimsoll

/// One client of an admin endpoint: what came from it and is no whole line yet, what it has not taken yet, and until when it is put up with.
///
/// Only the endpoint's thread uses it. Its room for a line is there from the beginning and is used again for the next client.
final class AdminConnection {
    /// 0 while it is nobody's; never used twice.
    private(set) var id: UInt64 = 0
    private(set) var file: Int32 = -1
    private var inbox: [UInt8]
    private var count = 0
    private var outbox: ArraySlice<UInt8> = []
    private let bounds: AdminEndpoint.Bounds

    /// A change is being carried out for it.
    var isBusy = false
    /// When it watches: the time between two answers, and when the next is due.
    var watch: (every: Duration, due: Duration)?
    /// It has said all that it will say.
    private(set) var isAtEnd = false
    /// Since when it says nothing, a line is incomplete, an answer waits.
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

    // MARK: What it waits for

    /// What is to be polled for; the end of the connection is told in any case.
    var events: Int16 {
        if !outbox.isEmpty { return Int16(POLLOUT) }
        return isBusy || isAtEnd || hasLine ? 0 : Int16(POLLIN)
    }

    /// Whether there is a request to be carried out now.
    var isReady: Bool { outbox.isEmpty && !isBusy && hasLine }

    /// Whether nothing is left to be done for it.
    var isDone: Bool { outbox.isEmpty && !isBusy && isAtEnd && !hasLine && watch == nil }

    /// Whether it ended in the middle of a line.
    var hasRest: Bool { count > 0 && !hasLine }

    enum Due { case answer, request, idle, watch }

    /// What happens next by itself, and when.
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

    /// Takes what has come, as far as there is room.
    func read(at now: Duration) -> Arrival {
        let taken = inbox.withUnsafeMutableBytes { recv(file, $0.baseAddress! + count, $0.count - count, Int32(MSG_DONTWAIT)) }
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

    /// Takes out the next whole line, without its newline, for `body`.
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

    /// Sends `line`; what the kernel has no room for waits. False if nobody is there any more.
    func send(_ line: [UInt8], at now: Duration) -> Bool {
        outbox = line[...]
        owedSince = now
        return flush(at: now)
    }

    /// Sends what waits; false if nobody is there any more.
    func flush(at now: Duration) -> Bool {
        while !outbox.isEmpty {
            let taken = outbox.withUnsafeBytes { Glibc.send(file, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT)) }
            if taken < 0, errno == EINTR { continue }
            if taken < 0 { return errno == EAGAIN }
            outbox = outbox.dropFirst(taken)
        }
        outbox = []
        quietSince = now
        return true
    }

    /// Whether an answer is on its way, being made, or yet to be made.
    var isOwed: Bool { !outbox.isEmpty || isBusy || hasLine }
}
