import Synchronization

/// Unfinished work that an expiring task passed on: to a peer, or to the next start of this service.
public struct Handover: Sendable, Identifiable {
    /// Identifier that stays the same across restarts, so that a receiver can tell work items apart.
    public let id: Int64
    /// Name of the task.
    public let name: String
    /// Payload that the task passed on.
    public let bytes: [UInt8]
    let store: HandoverStore?

    /// Accepts the work: no other receiver gets the work, and the store no longer keeps it. Idempotent. For claimed
    /// work; a sink accepts by returning.
    public func accept() { store?.accept(id) }
}

/// Handed-over work that is not accepted yet.
///
/// Each work item is written before the offer, and deleted once accepted. A crash between the two steps offers the
/// work item again, under the same id.
final class HandoverStore: Sendable {
    typealias Sink = @Sendable (Handover) async throws -> Void

    private struct State {
        var last: Int64 = 0
        var kept: [Entry] = []
        var sink: Sink?
        var store: KeptState?
        /// Accepted work that a read of the store may still yield; true once the store no longer holds the work.
        var accepted: [Int64: Bool] = [:]
        /// Number of reads of a store under way.
        var reads = 0

        mutating func endRead() {
            reads -= 1
            if reads == 0 { accepted = accepted.filter { !$0.value } }
        }
    }

    private struct Entry {
        let id: Int64
        let name: String
        let bytes: [UInt8]
        /// True while the sink or a claimant has the work.
        var isOut = false
    }

    private let state = Mutex(State())
    private let wall: @Sendable () -> Duration
    private static let mark = "PLIMSOLL-HANDOVERS"

    init(wall: @escaping @Sendable () -> Duration) { self.wall = wall }

    func setSink(_ sink: @escaping Sink) {
        // The former sink is released after the lock.
        let former = state.withLock { exchange(&$0.sink, sink) }
        withExtendedLifetime(former) {}
    }

    /// Adds work with the payload `bytes`. Saves the work if there is a store, and offers the work if there is a
    /// sink.
    ///
    /// - Returns: the reason why the work is in memory only; `nil` if the sink or the store has the work.
    func take(_ name: String, _ bytes: [UInt8], for registry: BackgroundTaskRegistry?) -> String? {
        let now = wall().inNanoseconds
        let (id, sink, store) = state.withLock { state in
            // By the time of day, so that the id differs from those of earlier runs even before their store is
            // known.
            let id = max(state.last + 1, now)
            state.last = id
            let sink = registry == nil ? nil : state.sink
            state.kept.append(Entry(id: id, name: name, bytes: bytes, isOut: sink != nil))
            return (id, sink, state.store)
        }
        let problem = store.map { $0.save() } ?? "no store is set (`persistHandovers(in:)`)"
        if let sink, let registry {
            let work = Handover(id: id, name: name, bytes: bytes, store: self)
            registry.offered()
            registry.threads.run { [self] in
                do {
                    try await sink(work)
                    accept(id)
                } catch {
                    putBack(id)
                }
                registry.answered()
            }
            return nil
        }
        return problem
    }

    func accept(_ id: Int64) {
        let store = state.withLock { state -> KeptState? in
            guard let index = state.kept.firstIndex(where: { $0.id == id }) else { return nil }
            state.kept.remove(at: index)
            if state.store != nil { state.accepted[id] = false }
            return state.store
        }
        // If the write fails, the store still holds the work.
        guard let store, store.save() == nil else { return }
        state.withLock { $0.accepted[id] = $0.reads == 0 ? nil : true }
    }

    private func putBack(_ id: Int64) {
        state.withLock { state in
            if let index = state.kept.firstIndex(where: { $0.id == id }) { state.kept[index].isOut = false }
        }
    }

    /// Returns the work without a receiver, each work item once.
    func claim() -> [Handover] {
        state.withLock { state in
            let free = state.kept.indices.filter { !state.kept[$0].isOut }
            return free.map { index in
                state.kept[index].isOut = true
                let entry = state.kept[index]
                return Handover(id: entry.id, name: entry.name, bytes: entry.bytes, store: self)
            }
        }
    }

    /// Keeps work in `store` from now on, beginning with the work stored there. Work that cannot be read stays as it
    /// is, and `store` is not used.
    ///
    /// - Returns: the reason why stored work could not be adopted or written; `nil` on success.
    func persist(in store: any StateStore) -> String? {
        state.withLock { $0.reads += 1 }
        let kept = KeptState(StateName.handovers, in: store) { [weak self] in self?.encoded ?? [] }
        let (old, problem, isRead) = kept.load(Self.decode)
        let writer = state.withLock { state -> KeptState? in
            defer { state.endRead() }
            guard isRead else { return nil }
            if let old {
                // Work of this run is in the store as well if the store was set before, also if accepted meanwhile.
                let known = Set(state.kept.map(\.id)).union(state.accepted.keys)
                state.kept.insert(contentsOf: old.entries.filter { !known.contains($0.id) }, at: 0)
                state.last = max(state.last, old.last)
            }
            // One writer for all stores: no earlier state is written after a later one.
            let writer = state.store ?? kept
            state.store = writer
            return writer
        }
        guard let writer else { return problem }
        writer.move(to: store)
        let unwritten = writer.save()
        return problem ?? unwritten
    }

    private var encoded: [UInt8] {
        let (last, entries) = state.withLock { ($0.last, $0.kept) }
        var bytes = KeptBytes(Self.mark, version: 1)
        bytes.put(last)
        bytes.put(Int64(entries.count))
        for entry in entries {
            bytes.put(entry.id)
            bytes.put(entry.name.utf8)
            bytes.put(entry.bytes)
        }
        return bytes.sealed()
    }

    private static func decode(_ bytes: [UInt8]) throws(KeptBytes.Problem) -> (last: Int64, entries: [Entry]) {
        var reader = try KeptBytes(reading: bytes, mark, version: 1)
        let last = try reader.number()
        // Identifiers are nanoseconds of the time of day or follow each other; later ones must remain possible.
        guard last >= 0, last < .max / 2 else { throw KeptBytes.Problem(reason: "the last identifier is out of range") }
        var entries: [Entry] = []
        for _ in 0..<max(0, try reader.number()) {
            let entry = Entry(id: try reader.number(), name: try reader.text(), bytes: try reader.field())
            guard entry.id <= last else { throw KeptBytes.Problem(reason: "an identifier is above the last one") }
            entries.append(entry)
        }
        return (last, entries)
    }
}

extension BackgroundTask {
    /// Passes on unfinished work; for expiration handlers.
    ///
    /// The work goes to the sink (`ResourceManager.onHandover`), and a sweep waits for the sink as for a task.
    /// Until accepted, the work is kept in the store (`persistHandovers(in:)`), where the next start can claim it.
    /// Writes to the store before returning. May be called several times, for several work items.
    ///
    /// - Returns: the reason why the work is in memory only. `nil` if the work outlives this process: with the sink,
    ///   or in the store until claimed. Work that the sink refuses outlives the process only in a store.
    @discardableResult
    public func handOver(_ bytes: [UInt8]) -> String? {
        guard let registry = record.shard.registry else { return "the manager no longer exists" }
        return registry.handovers.take(name, bytes, for: registry)
    }
}

extension BackgroundTaskRegistry {
    func offered() { gate.withLock { $0.offers += 1 } }

    func answered() {
        gate.withLock { $0.offers -= 1 }
        finishIfDone()
    }
}
