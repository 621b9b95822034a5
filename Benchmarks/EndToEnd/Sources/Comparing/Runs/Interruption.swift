import Glibc
import Synchronization

/// Whether somebody asked this process to end, so that what it started can be ended first.
public enum Interruption {
    // Relaxed: a flag that publishes nothing else.
    private static let asked = Atomic<Bool>(false)

    /// Listens for SIGINT and SIGTERM from now on.
    public static func listen() {
        // Made before a handler needs it.
        asked.store(false, ordering: .relaxed)
        for number in [SIGINT, SIGTERM] { signal(number) { _ in Interruption.asked.store(true, ordering: .relaxed) } }
    }

    /// Whether one of them has come.
    static var isAsked: Bool { asked.load(ordering: .relaxed) }
}
