import Synchronization

/// What has changed and must be made anew: marked as often as it changes, rebuilt once when that may be done (C55, C57).
///
///     let views = DirtySet<Page.ID>("views") { pages in await redraw(pages) }
///     manager.lifecycle.pausables.add(views)
///     views.mark(page)
///
/// In the background, while paused, and at the ladder's rung `quiesce`, marks are only collected. Otherwise a rebuild begins at once, in a task of its
/// own; at most one runs at a time, and what is marked meanwhile makes one more. By itself, in no set, it always rebuilds.
public final class DirtySet<Element: Hashable & Sendable>: Quiescable, GatedMember {
    private struct State {
        var marked: Set<Element> = []
        var isRebuilding = false
        var rebuilds: UInt64 = 0
    }

    public let name: String
    public let workClass: String?
    let gates = GateSlot()
    private let state = Mutex(State())
    private let rebuild: @Sendable (Set<Element>) async -> Void

    /// A set in which nothing is marked.
    ///
    /// - Parameters:
    ///   - name: what it is called in reports.
    ///   - workClass: the class of work it serves; a lease on it keeps it going (`QuiesceSet.lease`).
    ///   - rebuild: makes everything anew that was marked.
    public init(_ name: String, workClass: String? = nil, _ rebuild: @escaping @Sendable (Set<Element>) async -> Void) {
        self.name = name
        self.workClass = workClass
        self.rebuild = rebuild
    }

    /// Says that `element` has changed. O(1).
    public func mark(_ element: Element) { mark(contentsOf: CollectionOfOne(element)) }

    /// Says that all of `elements` have changed.
    public func mark(contentsOf elements: some Sequence<Element>) {
        // An equal element may be released by this, which must not happen under the lock.
        let marked = Array(elements)
        state.withLock { $0.marked.formUnion(marked) }
        look()
    }

    /// What is marked and has not been taken into a rebuild yet.
    public var marked: Set<Element> { state.withLock { $0.marked } }

    /// Rebuilds begun so far.
    public var rebuilds: UInt64 { state.withLock { $0.rebuilds } }

    public func quiesce(to extent: QuiesceExtent) {
        gates.follow(extent)
        look()
    }

    func look() {
        gates.current.notice()
        let begins = state.withLock { state in
            guard !isDeferred, !state.isRebuilding, !state.marked.isEmpty else { return false }
            state.isRebuilding = true
            return true
        }
        if begins { Task { await rebuildAll() } }
    }

    private func rebuildAll() async {
        // What was marked until the task got to run is taken along.
        while let elements = take() { await rebuild(elements) }
    }

    private func take() -> Set<Element>? {
        state.withLock { state in
            guard !isDeferred, !state.marked.isEmpty else {
                state.isRebuilding = false
                return nil
            }
            defer { state.marked = [] }
            state.rebuilds += 1
            return state.marked
        }
    }

    private var isDeferred: Bool { gates.current.extent.isQuiet }
}
