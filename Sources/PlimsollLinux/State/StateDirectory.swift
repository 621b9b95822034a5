import Glibc
import Plimsoll
import Synchronization

/// A directory of states, as one process has it.
///
/// Mutable state: `session` (the lock on the directory) by its own lock; what is known of the files' ends by that of their lane. A lane's lock is held
/// across the system calls for a name, which is its purpose: two writers of one name come one after the other. None is held in a call of anybody else's.
package final class StateDirectory: Sendable {
    /// The largest state taken, in bytes; a file that is longer than two of them is none of ours.
    package static let mostBytes = 1 << 30
    /// Changes may take this much before they count as having outgrown a whole that is smaller, in bytes: sixteen pages.
    private static let leastJournal = 64 << 10

    let path: String
    let kernel: any StateKernel

    /// The file that holds the lock; `nil` until first use.
    private let session = Mutex<Int32?>(nil)
    private let lanes = (0..<32).map { _ in Lane() }

    /// The names that hash to it.
    private final class Lane: Sendable {
        let tails = Mutex<[StateFileName: Tail]>([:])
    }

    /// Where a file of ours ends, so that a change can be appended without reading it.
    struct Tail {
        var nonce: UInt64
        var end: Int
        var count: UInt32
        var baseLength: Int
        /// Whether something that is not whole lies behind the end.
        var isTorn: Bool

        init(_ file: StateFile, fileLength: Int) {
            nonce = file.nonce
            end = file.end
            count = UInt32(file.records.count)
            baseLength = file.records[0].upperBound
            isTorn = fileLength > file.end
        }
    }

    package init(_ path: String, kernel: any StateKernel) {
        self.path = path
        self.kernel = kernel
    }

    deinit { closeLock() }

    private func closeLock() {
        let lock = session.withLock { session in
            defer { session = nil }
            return session
        }
        guard let lock else { return }
        kernel.unlock(lock)
        kernel.close(lock)
    }

    // MARK: - One a process

    /// Those in use, and by how many stores. An `flock` belongs to an open file, not to a process: two of them would keep each other out.
    private static let inUse = Mutex<[String: (directory: StateDirectory, stores: Int)]>([:])

    /// The directory at `path` for one more store, the same for all of the process. Each of them leaves it at its end.
    static func shared(_ path: String) -> StateDirectory {
        let path = absolute(path)
        return inUse.withLock { inUse in
            let entry = inUse[path] ?? (StateDirectory(path, kernel: HostStateKernel()), 0)
            inUse[path] = (entry.directory, entry.stores + 1)
            return entry.directory
        }
    }

    /// A store of it is gone. With the last one its lock is let go, under the lock of the table: whoever comes next opens it afterwards.
    func leave() {
        Self.inUse.withLock { inUse in
            guard let entry = inUse[path], entry.directory === self else { return }
            inUse[path] = entry.stores > 1 ? (self, entry.stores - 1) : nil
            if entry.stores == 1 { relinquish() }
        }
    }

    static func absolute(_ path: String) -> String {
        var path = path
        if !path.hasPrefix("/"), let here = getcwd(nil, 0) {
            path = String(cString: here) + "/" + path
            free(here)
        }
        while path.count > 1, path.hasSuffix("/") { path.removeLast() }
        return path
    }

    // MARK: - Operations

    func write(_ name: StateFileName, _ bytes: [UInt8], _ reports: inout [StateStoreReport]) throws(FileStateStoreError) {
        guard bytes.count <= Self.mostBytes else { throw FileStateStoreError(.tooLarge, at(name.file)) }
        try lane(name) { tails throws(FileStateStoreError) in
            try open(&reports)
            // Whatever happens, what was known of the old file's end no longer counts; a whole write makes it known again.
            tails[name] = nil
            tails[name] = try replace(name, bytes)
        }
    }

    func append(
        _ name: StateFileName, _ title: String, _ delta: [UInt8], _ reports: inout [StateStoreReport]
    ) throws(FileStateStoreError) -> Bool {
        guard delta.count <= Self.mostBytes else { throw FileStateStoreError(.tooLarge, at(name.file)) }
        return try lane(name) { tails throws(FileStateStoreError) in
            try open(&reports)
            // Known from a write or a read of this process. If not, the end may be anywhere: after a failed append, a torn one, another process.
            guard let tail = tails[name] else { return false }
            let journal = tail.end - tail.baseLength + StateFile.recordHeaderLength + delta.count
            guard journal <= max(tail.baseLength, Self.leastJournal), tail.count < .max else { return false }
            tails[name] = nil
            tails[name] = try extend(name, tail, delta)
            return true
        }
    }

    func load(_ name: StateFileName, _ title: String, _ reports: inout [StateStoreReport]) throws(FileStateStoreError) -> StoredState {
        return try lane(name) { tails throws(FileStateStoreError) in
            // What cannot be written to by anybody can be read without the lock.
            do throws(FileStateStoreError) { try open(&reports) } catch { if error.reason != .readOnly { throw error } }
            tails[name] = nil
            let bytes: [UInt8]
            switch try contents(name) {
            case .none: return .absent
            case .some(.success(let all)): bytes = all
            case .some(.failure(let damage)):
                try putAside(name, title, damage.description, &reports)
                return .setAside(reason: damage.description)
            }
            let file: StateFile
            do throws(StateFile.Damage) {
                file = try StateFile(parsing: bytes)
            } catch {
                try putAside(name, title, error.description, &reports)
                return .setAside(reason: error.description)
            }
            if file.end < bytes.count { reports.append(.tailDropped(name: title, byteCount: bytes.count - file.end)) }
            tails[name] = Tail(file, fileLength: bytes.count)
            return .state(base: Array(bytes[file.records[0]]), deltas: file.records.dropFirst().map { Array(bytes[$0]) })
        }
    }

    func remove(_ name: StateFileName, _ reports: inout [StateStoreReport]) throws(FileStateStoreError) {
        try lane(name) { tails throws(FileStateStoreError) in
            try open(&reports)
            tails[name] = nil
            try take(name.file)
        }
    }

    func setAside(_ name: StateFileName, _ title: String, _ reason: String, _ reports: inout [StateStoreReport]) throws(FileStateStoreError) {
        try lane(name) { tails throws(FileStateStoreError) in
            try open(&reports)
            tails[name] = nil
            try putAside(name, title, reason, &reports)
        }
    }

    private func putAside(
        _ name: StateFileName, _ title: String, _ reason: String, _ reports: inout [StateStoreReport]
    ) throws(FileStateStoreError) {
        if let report = try putAside(name, title, reason) { reports.append(report) }
    }

    private func lane<Result>(
        _ name: StateFileName, _ body: (inout [StateFileName: Tail]) throws(FileStateStoreError) -> Result
    ) throws(FileStateStoreError) -> Result {
        try lanes[Int(UInt(bitPattern: name.hashValue) % UInt(lanes.count))].tails.withLock { tails throws(FileStateStoreError) in try body(&tails) }
    }

    // MARK: - The lock on the directory

    /// Makes the directory if need be, takes the lock, and sweeps away what interrupted writes have left.
    ///
    /// Writers and readers call this in their lane, which `relinquish()` waits for: taken before it, the lock could be gone again by the time a write begins.
    func open(_ reports: inout [StateStoreReport]) throws(FileStateStoreError) {
        let swept = try session.withLock { session throws(FileStateStoreError) in
            if session != nil { return 0 }
            session = try takeLock()
            return sweep()
        }
        if swept > 0 { reports.append(.swept(count: swept)) }
    }

    /// Lets another process have the directory, once nothing is under way.
    func relinquish() { relinquish(lane: 0) }

    private func relinquish(lane index: Int) {
        guard index < lanes.count else { return closeLock() }
        lanes[index].tails.withLock { tails in
            tails.removeAll()
            relinquish(lane: index + 1)
        }
    }
}
