import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollLinux

/// Changes a state, for a test that kills this process at each of its system calls.
struct StateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_state", abstract: "Part of the tests.", shouldDisplay: false)

    enum Operation: String, ExpressibleByArgument { case write, append, grow, remove, clean, mark, box }

    @Option(help: "Directory of the state.") var directory: String
    @Option(help: "Number of bytes of 0x6e to write or append.") var bytes = 0
    @Argument(
        help:
            "write, append, grow (append, and write the whole once it is outgrown), remove, clean (set aside), mark, box (open a black box)."
    )
    var operation: Operation

    func run() throws {
        let store = FileStateStore(directory: directory)
        let new = [UInt8](repeating: 0x6e, count: bytes)
        // A tracer counts system calls from here on.
        raise(SIGSTOP)
        switch operation {
        case .write: try store.write("state", new)
        case .append, .grow:
            _ = try store.load("state")
            let isAppended = try store.append(new, to: "state")
            guard isAppended == (operation == .append) else { throw Failure.failed("appended: \(isAppended)") }
            if !isAppended { try store.write("state", new) }
        case .remove: try store.remove("state")
        case .clean: try store.setAside("state", reason: "a test")
        case .mark: try store.markKilledByOperator()
        case .box: _ = try BoxFile(directory + "/plimsoll.box", kernel: HostStateKernel())
        }
    }
}
