import Glibc
import Synchronization

/// A request to end this process, which first ends the processes that it started.
public enum Interruption {
    // Relaxed: numbers that publish nothing else.
    private static let number = Atomic<Int32>(0)
    private static let sender = Atomic<Int32>(0)

    /// Listens for SIGINT and SIGTERM from now on.
    public static func listen() {
        // Both made before a handler needs them.
        number.store(0, ordering: .relaxed)
        sender.store(0, ordering: .relaxed)
        var action = sigaction()
        action.sa_flags = SA_SIGINFO
        action.__sigaction_handler.sa_sigaction = { number, info, _ in
            Interruption.sender.store(info?.pointee._sifields._kill.si_pid ?? 0, ordering: .relaxed)
            Interruption.number.store(number, ordering: .relaxed)
        }
        for number in [SIGINT, SIGTERM] { sigaction(number, &action, nil) }
    }

    /// True once one of them has come.
    static var isAsked: Bool { number.load(ordering: .relaxed) != 0 }

    /// The signal that came and the process that sent it.
    static var description: String {
        "signal \(number.load(ordering: .relaxed)) of process \(sender.load(ordering: .relaxed))"
    }
}
