import Synchronization

/// The closings of gates that wait for a call to end, kept to find those that would wait for each other for ever.
///
/// A callback that cancels the registration of another waits for the other's call. Should that call cancel the first, each
/// would wait for the other: the one that comes second finds so here and does not wait.
enum CloseWaits {
    /// A gate that somebody waits for.
    struct Gate: Sendable {
        /// Tells gates apart.
        let id: ObjectIdentifier
        /// The thread inside, or 0 for none and for a gate that tasks go through.
        let caller: @Sendable () -> UInt

        init(_ gate: CallGate) { (id, caller) = (ObjectIdentifier(gate), { [unowned gate] in gate.caller }) }
        init(_ gate: AsyncCallGate) { (id, caller) = (ObjectIdentifier(gate), { 0 }) }
    }

    private struct Wait {
        /// Who waits: the thread, and the gates that its task is inside of.
        let thread: UInt
        let inside: [ObjectIdentifier]
        let gate: Gate
    }

    private static let waits = Mutex<[Wait]>([])

    /// Runs `body`, which waits until the calls inside `gate` have ended, unless one of them waits for the caller's.
    static func wait(for gate: Gate, _ body: () -> Void) {
        let mine = Wait(thread: Thread.current, inside: AsyncCallGate.around, gate: gate)
        let goes = waits.withLock { waits in
            guard !leadsBack(from: gate, to: mine, waits) else { return false }
            waits.append(mine)
            return true
        }
        guard goes else { return }
        body()
        waits.withLock { waits in
            // A thread waits for one gate at a time.
            if let index = waits.firstIndex(where: { $0.thread == mine.thread }) { waits.remove(at: index) }
        }
    }

    /// Whether a call inside `gate` waits, by way of others or not, for the one that is about to wait.
    private static func leadsBack(from gate: Gate, to mine: Wait, _ waits: [Wait]) -> Bool {
        var seen: Set<ObjectIdentifier> = [], next = [gate]
        while let gate = next.popLast() {
            let caller = gate.caller()
            if caller == mine.thread || mine.inside.contains(gate.id) { return true }
            guard seen.insert(gate.id).inserted else { continue }
            next += waits.filter { caller != 0 && $0.thread == caller || $0.inside.contains(gate.id) }.map(\.gate)
        }
        return false
    }
}
