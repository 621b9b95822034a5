import CPlimsollSupervisor
import Glibc
import Plimsoll
import Synchronization

/// Writes lines to a file on a thread of its own: a pipe that is full, or a disk that does not answer, holds up that thread alone.
///
/// Lines that find no room in the queue are dropped and counted, and the count is told once lines are written again.
package final class LineWriter: Sendable {
    /// What happened to lines.
    package enum Trouble: Sendable, Hashable {
        /// A line could not be written, for the first time since one could: an errno.
        case failed(Int32)
        /// So many lines found no room in the queue since the last time.
        case dropped(Int)
    }

    private struct State {
        var queue: [[UInt8]] = []
        /// In the queue and being written.
        var bytes = 0
        var dropped = 0
        var isFinishing = false
        /// The thread gives up what it has.
        var isOver = false
        var hasEnded = false
    }

    /// Bytes that may wait.
    private let capacity: Int
    private let file: Int32
    private let closesFile: Bool
    private let trouble: @Sendable (Trouble) -> [UInt8]?
    private let state = Mutex(State())
    private let parker = Parker(), end = Parker()

    /// - Parameters:
    ///   - file: where lines go.
    ///   - closesFile: whether the file goes with the writer.
    ///   - isTorn: whether what the file holds ends in the middle of a line.
    ///   - trouble: called on the writing thread with what happened; returns a line to write in place of dropped ones, or `nil`.
    /// - Returns: `nil` if the process may start no more threads.
    package init?(
        _ file: Int32, closesFile: Bool = false, isTorn: Bool = false, capacity: Int = 1 << 20,
        trouble: @escaping @Sendable (Trouble) -> [UInt8]? = { _ in nil }
    ) {
        (self.file, self.closesFile, self.capacity, self.trouble) = (file, closesFile, capacity, trouble)
        guard Thread.start("plimsoll-lines", { [self] in work(isTorn: isTorn) }) else { return nil }
    }

    /// Has `line`, which ends with a newline, written soon. Never waits.
    package func write(_ line: [UInt8]) {
        let isTaken = state.withLock { state in
            guard !state.isFinishing, state.bytes + line.count <= capacity else {
                state.dropped += 1
                return false
            }
            state.queue.append(line)
            state.bytes += line.count
            return true
        }
        if isTaken { parker.unpark() }
    }

    /// Ends the writer once all lines are written, or after `limit`; later lines are dropped.
    ///
    /// - Returns: whether all lines were written.
    @discardableResult
    package func finish(within limit: Duration) -> Bool {
        state.withLock { $0.isFinishing = true }
        parker.unpark()
        if limit > .zero { end.park(atMost: limit) }
        return state.withLock { state in
            state.isOver = true
            return state.hasEnded && state.dropped == 0
        }
    }

    // MARK: - The thread

    private func work(isTorn: Bool) {
        var isTorn = isTorn, isFailing = false
        while let (lines, dropped) = take() {
            for line in lines {
                put(line, &isTorn, &isFailing)
                state.withLock { $0.bytes -= line.count }
            }
            if dropped > 0, let line = trouble(.dropped(dropped)) { put(line, &isTorn, &isFailing) }
        }
        if closesFile { close(file) }
        state.withLock { $0.hasEnded = true }
        end.unpark()
    }

    /// The lines that wait, and how many were dropped after them; `nil` at the end.
    private func take() -> (lines: [[UInt8]], dropped: Int)? {
        while true {
            let (work, isOver) = state.withLock { state -> ((lines: [[UInt8]], dropped: Int)?, Bool) in
                guard !state.isOver, !state.queue.isEmpty || state.dropped > 0 && state.bytes == 0 else {
                    return (nil, state.isFinishing || state.isOver)
                }
                defer { (state.queue, state.dropped) = ([], 0) }
                return ((state.queue, state.dropped), false)
            }
            if let work { return work }
            if isOver { return nil }
            parker.park()
        }
    }

    private func put(_ line: [UInt8], _ isTorn: inout Bool, _ isFailing: inout Bool) {
        // What follows a torn line would be lost with that line.
        let bytes = isTorn ? [UInt8(ascii: "\n")] + line : line
        var written = 0
        while written < bytes.count {
            guard isReady() else { return }
            // A pipe that is ready has room for so many bytes (PIPE_BUF), so this does not block for others to read.
            let count = bytes.withUnsafeBytes { Glibc.write(file, $0.baseAddress! + written, min(4096, $0.count - written)) }
            if count < 0, errno == EINTR || errno == EAGAIN { continue }
            guard count > 0 else {
                if written > 0 { isTorn = true }
                if !isFailing { _ = trouble(.failed(count < 0 ? errno : ENOSPC)) }
                isFailing = true
                return
            }
            written += count
        }
        (isTorn, isFailing) = (false, false)
    }

    /// Waits until the file takes bytes; false if the writer is to give up.
    private func isReady() -> Bool {
        while !state.withLock({ $0.isOver }) { if plimsoll_ready(file, POLLOUT, 100) != 0 { return true } }
        return false
    }
}
