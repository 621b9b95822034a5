import Plimsoll
import Synchronization

/// Registration of readers, observers, interceptors and derived values, and the watches they need.
extension Environment {
    /// The kinds watched for every observer that wants all kinds.
    static let common: Set<EnvironmentChange.Kind> = [.clock, .timeZone, .day, .locale]

    /// Creates a reader of all kinds from now on.
    func makeReader() -> EnvironmentReader {
        let watched = Self.common.filter { watch.add($0) }
        let id = state.withLock { state in
            state.lastReader += 1
            return state.lastReader
        }
        let reader = EnvironmentReader(
            isHeld: { [weak self] in self?.isHeld ?? false },
            onDrop: { [weak self] in
                // By id: a look at the other readers retains them, and the last reference could end under the lock.
                self?.state.withLock { $0.readers.removeAll { $0.id == id } }
                for kind in watched { self?.watch.remove(kind) }
            })
        state.withLock { $0.readers.append(Weak(id: id, reader: reader)) }
        return reader
    }

    func add(_ observer: EnvironmentObserver) -> Registration {
        let watched = (observer.kinds.isEmpty ? Self.common : observer.kinds).filter { watch.add($0) }
        state.withLock { $0.observers.append(observer) }
        return Registration(observer.gate) { [weak self, weak observer] in
            let removed = self?.state.withLock { $0.observers.remove(identicalTo: observer) }
            if removed != nil { for kind in watched { self?.watch.remove(kind) } }
        }
    }

    func add(_ interceptor: EnvironmentInterceptor) -> Registration {
        state.withLock { $0.interceptors.append(interceptor) }
        return Registration(interceptor.gate) { [weak self, weak interceptor] in
            let removed = self?.state.withLock { $0.interceptors.remove(identicalTo: interceptor) }
            withExtendedLifetime(removed) {}
        }
    }

    func add(_ derived: any Derived) -> Registration {
        let watched = derived.kinds.filter { watch.add($0) }
        // The value may have been built before the watches began.
        derived.invalidate()
        state.withLock { $0.derived.append(derived) }
        return Registration(CallGate()) { [weak self, weak derived] in
            let removed = self?.state.withLock { $0.derived.remove(identicalTo: derived) }
            if removed != nil { for kind in watched { self?.watch.remove(kind) } }
        }
    }

    /// Watches `kind` on its own. Observers and readers of all kinds then also receive the changes.
    func add(_ kind: EnvironmentChange.Kind, quiet: Duration?) -> Registration {
        let isWatched = watch.add(kind, quiet: quiet)
        let isCounted = Mutex(isWatched)
        return Registration(CallGate()) { [weak self] in
            // Removes one watch only once, even if cancelled many times and on many threads.
            let counted = isCounted.withLock { exchange(&$0, false) }
            if counted { self?.watch.remove(kind) }
        }
    }
}
