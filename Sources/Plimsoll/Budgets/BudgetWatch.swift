import CPlimsollMemory
import CPlimsollProcess
import Synchronization

/// The thread that cancels requests. A request may exceed its limit inside malloc, where nothing else may run, so
/// the thread that allocates only wakes this one.
final class BudgetWatch: Sendable {
    static let shared = BudgetWatch()

    private struct Entry {
        weak var registry: BudgetRegistry?
    }

    /// Those besides the process's.
    private let registries = Mutex<[Entry]>([])
    /// True once the thread runs. Relaxed: the exchange elects one thread that starts the watch.
    private let runs = Atomic<Bool>(false)
    private let parker = Parker()
    /// Cancellation handlers are user code, which may block.
    private let threads = HandlerThreads()

    private init() {
        // Lives as long as the process, as this object does. Unparking takes a lock under which nothing allocates.
        let parker = Unmanaged.passRetained(parker).toOpaque()
        plimsoll_budget_when_marked({ Unmanaged<Parker>.fromOpaque($0!).takeUnretainedValue().unpark() }, parker)
    }

    func watch(_ registry: BudgetRegistry) {
        registries.withLock { entries in
            entries.removeAll { $0.registry == nil }
            entries.append(Entry(registry: registry))
        }
    }

    /// Starts the thread if there is none. A thread that could not be started is tried again with the next budget.
    func start() {
        guard !runs.load(ordering: .relaxed), !runs.exchange(true, ordering: .relaxed) else { return }
        let started = Thread.start("plimsoll-budget") { [self] in
            while true {
                parker.park()
                // Off the cooperative pool, as cancellation handlers may block (T7).
                threads.run { [self] in
                    BudgetRegistry.process.cancelMarked()
                    for registry in registries.withLock({ $0.compactMap(\.registry) }) { registry.cancelMarked() }
                }
            }
        }
        if !started { runs.store(false, ordering: .relaxed) }
    }
}
