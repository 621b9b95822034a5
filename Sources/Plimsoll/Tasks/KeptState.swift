import Synchronization

/// The latest version of one state in a store under a name. One thread writes at a time, and none under a lock.
///
/// `save()` returns once a state encoded after the call began was written, or the write failed.
final class KeptState: Sendable {
    private struct State {
        var store: any StateStore
        var wanted: UInt64 = 0
        var written: UInt64 = 0
        var isWriting = false
        var waiting: [Parker] = []
        var problem: String?
    }

    private enum Turn {
        case done(String?)
        case write(UInt64)
        case wait(Parker)
    }

    let name: String
    private let encode: @Sendable () -> [UInt8]
    private let state: Mutex<State>

    init(_ name: String, in store: any StateStore, encode: @escaping @Sendable () -> [UInt8]) {
        self.name = name
        self.encode = encode
        state = Mutex(State(store: store))
    }

    private var store: any StateStore { state.withLock { $0.store } }

    /// Writes to `store` from the next write on.
    func move(to store: any StateStore) {
        // The former store may be released here, outside the lock.
        let former = state.withLock { exchange(&$0.store, store) }
        withExtendedLifetime(former) {}
    }

    /// Saves the state. Returns the reason if the state could not be written, else `nil`.
    @discardableResult
    func save() -> String? {
        let mine = state.withLock { state in
            state.wanted += 1
            return state.wanted
        }
        while true {
            switch turn(mine) {
            case .done(let problem): return problem
            case .wait(let parker): parker.park()
            case .write(let target):
                let problem = write()
                let waiting = state.withLock { state in
                    state.written = target
                    state.problem = problem
                    state.isWriting = false
                    return exchange(&state.waiting, [])
                }
                for parker in waiting { parker.unpark() }
            }
        }
    }

    private func turn(_ mine: UInt64) -> Turn {
        state.withLock { state in
            if state.written >= mine { return .done(state.problem) }
            guard state.isWriting else {
                state.isWriting = true
                return .write(state.wanted)
            }
            let parker = Parker()
            state.waiting.append(parker)
            return .wait(parker)
        }
    }

    private func write() -> String? {
        do {
            try store.write(name, encode())
            return nil
        } catch {
            return "cannot write \(name): \(error)"
        }
    }

    /// Loads the stored state. An unusable state is set aside, and the reason returned: a clean start.
    ///
    /// - Returns: the state, and the reason for a lack of one. `isRead` is false if the stored state could not be
    ///   read. That state may be intact, and a save would destroy the state.
    func load<Kept>(
        _ decode: ([UInt8]) throws(KeptBytes.Problem) -> Kept
    ) -> (kept: Kept?, problem: String?, isRead: Bool) {
        do {
            switch try store.load(name) {
            case .absent: return (nil, nil, true)
            case .setAside(let reason): return (nil, unusable(reason), true)
            case .state(let bytes, _):
                do throws(KeptBytes.Problem) {
                    return (try decode(bytes), nil, true)
                } catch {
                    try store.setAside(name, reason: error.reason)
                    return (nil, unusable(error.reason), true)
                }
            }
        } catch {
            return (nil, "cannot read \(name): \(error)", false)
        }
    }

    private func unusable(_ reason: String) -> String { "\(name) was set aside because \(reason)" }
}

/// A byte encoding of numbers and texts: a mark, a version, the fields, and a checksum over all preceding bytes.
struct KeptBytes {
    struct Problem: Error { var reason: String }

    private(set) var bytes: [UInt8]
    private var position = 0

    // MARK: Writing

    init(_ mark: String, version: UInt8) { bytes = Array(mark.utf8) + [version] }

    mutating func put(_ number: Int64) {
        for shift in stride(from: 0, to: 64, by: 8) { bytes.append(UInt8(truncatingIfNeeded: number >> shift)) }
    }

    mutating func put(_ field: some Collection<UInt8>) {
        put(Int64(field.count))
        bytes.append(contentsOf: field)
    }

    /// Returns all bytes with the checksum appended.
    mutating func sealed() -> [UInt8] {
        put(Int64(bitPattern: FNV1a.hash(bytes[...])))
        return bytes
    }

    // MARK: Reading

    /// Checks mark, version and checksum, so that the fields were written in this format.
    init(reading bytes: [UInt8], _ mark: String, version: UInt8) throws(Problem) {
        guard bytes.count >= mark.utf8.count + 9, bytes.starts(with: mark.utf8) else {
            throw Problem(reason: "the data is truncated or of another kind")
        }
        position = mark.utf8.count
        guard bytes[position] == version else {
            throw Problem(reason: "the data has version \(bytes[position]); this program reads version \(version)")
        }
        position += 1
        self.bytes = Array(bytes.dropLast(8))
        var sum = KeptBytes(end: Array(bytes.suffix(8)))
        guard try UInt64(bitPattern: sum.number()) == FNV1a.hash(self.bytes[...]) else {
            throw Problem(reason: "the data is damaged")
        }
    }

    private init(end bytes: [UInt8]) { self.bytes = bytes }

    mutating func number() throws(Problem) -> Int64 {
        guard bytes.count - position >= 8 else { throw Problem(reason: "the data ends in the middle of a number") }
        defer { position += 8 }
        return (0..<8).reduce(0) { $0 | Int64(bytes[position + $1]) << (8 * $1) }
    }

    mutating func field() throws(Problem) -> [UInt8] {
        let count = try number()
        guard count >= 0, count <= bytes.count - position else {
            throw Problem(reason: "the data ends in the middle of a field")
        }
        defer { position += Int(count) }
        return Array(bytes[position..<position + Int(count)])
    }

    mutating func text() throws(Problem) -> String { String(decoding: try field(), as: UTF8.self) }
}
