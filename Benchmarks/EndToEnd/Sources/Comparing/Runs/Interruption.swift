import Glibc
import Synchronization

/// A request to end this process, which first ends the processes that it started.
public enum Interruption {
    // Relaxed: a flag that publishes nothing else.
    private static let asked = Atomic<Bool>(false)

    /// Listens for SIGINT and SIGTERM from now on.
    public static func listen() {
        // Made before a handler needs it.
        asked.store(false, ordering: .relaxed)
        for number in [SIGINT, SIGTERM] { signal(number) { _ in Interruption.asked.store(true, ordering: .relaxed) } }
    }

    /// True once one of them has come.
    static var isAsked: Bool { asked.load(ordering: .relaxed) }
}
