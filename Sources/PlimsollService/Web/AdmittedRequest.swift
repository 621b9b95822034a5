import Synchronization

/// The place of an admitted request. The place ends once: by `end()`, or when the object is released.
///
/// For adapters of frameworks that may drop an answer instead of sending it, as for a client that is gone.
package final class AdmittedRequest: Sendable {
    private let shedder: RequestShedder
    // Relaxed: one caller wins the exchange; `RequestShedder.end()` orders the rest.
    private let hasEnded = Atomic<Bool>(false)

    /// Takes over the place of a request that `shedder` has just admitted.
    package init(_ shedder: RequestShedder) { self.shedder = shedder }

    deinit { end() }

    /// Ends the request. Idempotent.
    package func end() { if !hasEnded.exchange(true, ordering: .relaxed) { shedder.end() } }
}
