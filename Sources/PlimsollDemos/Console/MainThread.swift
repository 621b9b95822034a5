package import ArgumentParser
import Glibc

/// The thread on which a program's command runs.
package enum MainThread {
    /// Parses the command line and runs the command. An asynchronous `main` would run on the runtime's thread pool.
    /// Pool threads block signals, and processes started there would inherit that mask. A signal blocked on a pool
    /// thread would still end this process through the main thread.
    package static func run<Root: ParsableCommand>(_ root: Root.Type) {
        // A parent may leave the signal ignored. The kernel would then reap children, and a wait would miss their end.
        signal(SIGCHLD, SIG_DFL)
        do {
            var command = try root.parseAsRoot()
            guard let asynchronous = command as? any AsyncParsableCommand else {
                try command.run()
                return try reportingFailure { try Output.check() }
            }
            runToExit(asynchronous, root)
        } catch {
            root.exit(withError: error)
        }
    }

    /// Runs the commands that run a manager. They end with the process.
    private static func runToExit<Root: ParsableCommand>(
        _ command: sending any AsyncParsableCommand, _ root: Root.Type
    ) -> Never {
        Task {
            var command = command
            do {
                try await command.run()
                Root.exit()
            } catch {
                Root.exit(withError: error)
            }
        }
        while true { pause() }
    }
}
