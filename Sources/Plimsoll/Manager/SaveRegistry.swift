import Synchronization

/// Saves to run before the process ends itself.
final class SaveRegistry: Sendable {
    typealias Save = @Sendable (_ timeLeft: Duration) throws -> Void

    private let saves = Mutex<[(name: String, save: Save)]>([])

    func add(_ name: String, _ save: @escaping Save) { saves.withLock { $0.append((name, save)) } }

    /// Runs all saves in parallel on threads of their own, and waits at most `grace` for them.
    ///
    /// - Returns: the saves that failed or did not finish, each with the reason.
    func run(within grace: Duration, threads: HandlerThreads, time: Timekeeper) -> [String] {
        let all = saves.withLock { $0 }
        let done = Parker()
        let box = Outcomes(done)
        let deadline = time.elapsed() + grace
        for (index, (name, save)) in all.enumerated() {
            threads.run {
                do {
                    try save(deadline - time.elapsed())
                    box.finish(index, nil)
                } catch {
                    box.finish(index, "\(name) failed: \(error)")
                }
            }
        }
        while box.count < all.count {
            let left = deadline - time.elapsed()
            if left <= .zero { break }
            done.park(atMost: left)
        }
        return all.enumerated().compactMap { index, entry in
            switch box[index] {
            case .some(.some(let failure)): failure
            case .some(.none): nil
            case .none: "\(entry.name) did not finish within \(grace)"
            }
        }
    }

    private final class Outcomes: Sendable {
        private let outcomes = Mutex<[Int: String?]>([:])
        private let done: Parker

        init(_ done: Parker) { self.done = done }

        var count: Int { outcomes.withLock { $0.count } }
        subscript(index: Int) -> String?? { outcomes.withLock { $0[index] } }

        func finish(_ index: Int, _ failure: String?) {
            outcomes.withLock { $0[index] = .some(failure) }
            done.unpark()
        }
    }
}
