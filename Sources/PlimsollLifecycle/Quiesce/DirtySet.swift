import Plimsoll
import Synchronization

/// A set of elements that have changed and must be rebuilt. Marking is cheap and may repeat; one rebuild covers all
/// marks (C55, C57).
///
///     let views = DirtySet<Page.ID>("views") { pages in await redraw(pages) }
///     manager.lifecycle.pausables.add(views)
///     views.mark(page)
///
/// In the background, while paused, and at the ladder's rung `quiesce`, marks are only collected. Otherwise a rebuild
/// begins at once, in a separate task. At most one rebuild runs at a time; marks made meanwhile cause one more. A
/// dirty set that is in no `QuiesceSet` always rebuilds.
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

    /// Creates a set in which no element is marked.
    ///
    /// - Parameters:
    ///   - name: name used in reports.
    ///   - workClass: class of work that the set serves. A lease on the class keeps the set going
    ///     (`QuiesceSet.lease`).
    ///   - rebuild: rebuilds all marked elements.
    public init(_ name: String, workClass: String? = nil, _ rebuild: @escaping @Sendable (Set<Element>) async -> Void) {
        self.name = name
        self.workClass = workClass
        self.rebuild = rebuild
    }

    /// Marks `element` as changed. O(1).
    public func mark(_ element: Element) { mark(contentsOf: CollectionOfOne(element)) }

    /// Marks all of `elements` as changed.
    public func mark(contentsOf elements: some Sequence<Element>) {
        // `formUnion` may release an equal element, which must not happen under the lock. The array keeps the
        // elements alive.
        let marked = Array(elements)
        state.withLock { $0.marked.formUnion(marked) }
        poll()
    }

    /// The marked elements that no rebuild has dequeued yet.
    public var marked: Set<Element> { state.withLock { $0.marked } }

    /// Number of rebuilds begun so far.
    public var rebuilds: UInt64 { state.withLock { $0.rebuilds } }

    public func quiesce(to extent: QuiesceExtent) {
        gates.follow(extent)
        poll()
    }

    func poll() {
        gates.current.notice()
        let begins = state.withLock { state in
            guard !isDeferred, !state.isRebuilding, !state.marked.isEmpty else { return false }
            state.isRebuilding = true
            return true
        }
        if begins { Task { await rebuildAll() } }
    }

    private func rebuildAll() async {
        // The first rebuild includes all marks made before the task started to run.
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
