import Dispatch
import Logging
import Plimsoll
import PlimsollLifecycle
import ServiceLifecycle
import Synchronization

/// Takes the place of your server: takes fifty orders a second until it is shut down.
final class Shop: Service {
    private let manager: ResourceManager
    private let batch: Duration
    private let logger = Logger(label: "shop")
    private let orders = Atomic<Int>(0)
    /// Pictures that can be rendered again. Keeps as many as memory has room for.
    private let pictures = PurgeableCache<Int, [UInt8]>("pictures", cost: { _, picture in picture.count })
    private let saved = Mutex<Preserved?>(nil)
    private let saving = DispatchQueue(label: "saving")

    struct Unreadable: Error {}

    init(_ manager: ResourceManager, batch: Duration) {
        (self.manager, self.batch) = (manager, batch)
        manager.register(pictures)
    }

    /// Keeps the count of orders in a store that outlives the process.
    func keep(in store: any StateStore) {
        let state = manager.lifecycle.preserve("orders", in: store) { [self] in
            Array("\(orders.load(ordering: .relaxed))".utf8)
        } restore: { [self] bytes in
            guard let count = Int(String(decoding: bytes, as: UTF8.self)) else { throw Unreadable() }
            orders.store(count, ordering: .relaxed)
            logger.info("restored \(count) orders; the previous run: \(manager.lifecycle.previousRun ?? .unknown)")
        }
        saved.withLock { $0 = state }
    }

    func run() async throws {
        // Goes on when the shop has closed, until the manager asks it to stop.
        Task { await export() }
        await cancelWhenGracefulShutdown { [self] in
            while !Task.isCancelled {
                takeOrder()
                try? await Task.sleep(for: .milliseconds(20))
            }
        }
        logger.info("closed with \(orders.load(ordering: .relaxed)) orders")
    }

    private func takeOrder() {
        let order = orders.add(1, ordering: .relaxed).newValue
        pictures.insert([UInt8](repeating: 1, count: 512 << 10), forKey: order)
        // All is saved at the end; but a crash tells nobody before. Saving blocks, which a task must not.
        guard order % 50 == 0, let state = saved.withLock({ $0 }) else { return }
        saving.async { [logger] in
            do { try state.checkpoint() } catch { logger.warning("cannot save the state: \(error)") }
        }
    }

    /// Exports orders in batches. If the export has to stop, the handler finishes the batch that was begun.
    private func export() async {
        while !manager.isShuttingDown {
            try? await manager.withBackgroundTask("export") { [batch] task in
                for done in 0..<10 {
                    task.progress(completed: done, total: 10)
                    try await Task.sleep(for: batch)
                }
            } onExpiration: { [batch, logger] _, reason in
                logger.info("started to finish the batch before the stop: \(reason)")
                try? await Task.sleep(for: batch)
                logger.info("finished the batch")
            }
            try? await Task.sleep(for: .seconds(1))
        }
    }
}
