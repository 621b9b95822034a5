import CPlimsollSupervisor
import Glibc
import Plimsoll
import Synchronization

/// A writer of lines to a file, on a separate thread. A full pipe or a disk that doesn't answer blocks only that
/// thread.
///
/// Lines that find the queue full are dropped and counted. The count is reported once lines are written again.
package final class LineWriter: Sendable {
    /// Problems with lines.
    package enum Trouble: Sendable, Hashable {
        /// A write failed with this errno, for the first time since a successful one.
        case failed(Int32)
        /// Number of lines that found the queue full since the last report.
        case dropped(Int)
    }

    private struct State {
        var queue: [[UInt8]] = []
        /// Number of bytes in the queue and being written.
        var bytes = 0
        var dropped = 0
        var isFinishing = false
        /// True once the thread must abandon the remaining lines.
        var isOver = false
        var hasEnded = false
    }

    /// The maximum number of pending bytes.
    private let capacity: Int
    private let file: Int32
    private let closesFile: Bool
    private let trouble: @Sendable (Trouble) -> [UInt8]?
    private let state = Mutex(State())
    private let parker = Parker(), end = Parker()

    /// - Parameters:
    ///   - file: the destination of the lines.
    ///   - closesFile: true if the writer closes the file at its end.
    ///   - isTorn: true if the existing content ends in the middle of a line.
    ///   - trouble: called on the writing thread with each problem; returns a line to write in place of dropped ones,
    ///     or `nil`.
    /// - Returns: `nil` if the process may start no more threads.
    package init?(
        _ file: Int32, closesFile: Bool = false, isTorn: Bool = false, capacity: Int = 1 << 20,
        trouble: @escaping @Sendable (Trouble) -> [UInt8]? = { _ in nil }
    ) {
        (self.file, self.closesFile, self.capacity, self.trouble) = (file, closesFile, capacity, trouble)
        guard Thread.start("plimsoll-lines", { [self] in work(isTorn: isTorn) }) else { return nil }
    }

    /// Queues `line`, which must end with a newline. Never blocks.
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

    /// Ends the writer once all lines are written, or after `limit`. Later lines are dropped.
    ///
    /// - Returns: true if all lines were written.
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

    /// Returns the queued lines and the number of lines dropped after them; `nil` at the end.
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
        // Text directly after a torn line would be lost with that line, so start a new line.
        let bytes = isTorn ? [UInt8(ascii: "\n")] + line : line
        var written = 0
        while written < bytes.count {
            guard isReady() else { return }
            // A pipe that polls writable has room for this many bytes (PIPE_BUF), so the write does not block on a slow
            // reader.
            let count = bytes.withUnsafeBytes {
                Glibc.write(file, $0.baseAddress! + written, min(4096, $0.count - written))
            }
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

    /// Waits until the file accepts bytes. Returns false if the writer must stop.
    private func isReady() -> Bool {
        while !state.withLock({ $0.isOver }) { if plimsoll_ready(file, POLLOUT, 100) != 0 { return true } }
        return false
    }
}
