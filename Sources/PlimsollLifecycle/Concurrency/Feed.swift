import Plimsoll
import Synchronization

/// Delivers each value to the current readers, and keeps the last few for later readers.
final class Feed<Element: Sendable>: Sendable {
    private struct State {
        var last: [Element] = []
        var readers: [UInt64: AsyncStream<Element>.Continuation] = [:]
        var nextID: UInt64 = 0
    }

    private let state = Mutex(State())
    private let most: Int

    /// - Parameter most: number of values kept.
    init(keeps most: Int = 0) { self.most = most }

    func add(_ element: Element) {
        let readers = state.withLock { state in
            if most > 0 {
                if state.last.count == most { state.last.removeFirst() }
                state.last.append(element)
            }
            return Array(state.readers.values)
        }
        for reader in readers { reader.yield(element) }
    }

    /// The last values, oldest first.
    var last: [Element] { state.withLock { $0.last } }

    /// The values added from now on. A reader that falls behind by more than 1,024 loses the oldest.
    var stream: AsyncStream<Element> {
        AsyncStream(bufferingPolicy: .bufferingNewest(1024)) { continuation in
            let id = state.withLock { state in
                state.nextID += 1
                state.readers[state.nextID] = continuation
                return state.nextID
            }
            continuation.onTermination = { [weak self] _ in
                let gone = self?.state.withLock { $0.readers.removeValue(forKey: id) }
                withExtendedLifetime(gone) {}
            }
        }
    }
}
