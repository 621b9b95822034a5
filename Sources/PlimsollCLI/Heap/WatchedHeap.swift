import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollHeap
import Synchronization

/// The heap of a command, counted each time that the process has grown by a quarter, and just before its end.
final class WatchedHeap: Sendable {
    private struct State {
        var largest: HeapCensus?
        var problem: HeapCensusError?
        var waitStatus: Int32?
    }

    private let process: Int32
    private let state = Mutex(State())

    private init(_ process: Int32) { self.process = process }

    /// Runs the command, which is found as a shell finds one, and passes signals on to the process.
    ///
    /// - Returns: The census with the most bytes in use, or the reason why there is none.
    static func run(_ command: [String]) throws -> (ChildProcess.Ending, Result<HeapCensus, HeapCensusError>) {
        // Threads that are started later block the same signals.
        let signals = SignalQueue(SignalQueue.endings)
        // Stopped until the process is traced: a command may end within a millisecond.
        let start = ["sh", "-c", "kill -STOP $$; exec \"$@\"", "sh"]
        let heap = WatchedHeap(try ChildProcess("/bin/sh", start + command).pid)
        // The thread that traces a process is the only one that may wait for the process.
        guard Thread.start("heap watch", { heap.watch() }) else {
            kill(heap.process, SIGKILL)
            throw Failure.failed("cannot watch \(command[0]) because no thread can be started")
        }
        let began = SteadyClock.now
        var trigger = GrowthTrigger()
        while true {
            if let status = heap.state.withLock({ $0.waitStatus }) {
                return (ChildProcess.Ending(waitStatus: status), heap.result)
            }
            if let signal = signals.nextToPassOn(within: .milliseconds(100)) { kill(heap.process, signal) }
            // While the shell becomes the command, a census would find neither's heap.
            guard SteadyClock.now - began >= .milliseconds(100) else { continue }
            if let pages = heap.anonymousPages, trigger.isDue(pages) { heap.count() }
        }
    }

    private var result: Result<HeapCensus, HeapCensusError> {
        state.withLock { state in
            if let largest = state.largest { return .success(largest) }
            let reason = "cannot take a census of the heap because the command was ended at once, by a signal"
            return .failure(state.problem ?? HeapCensusError(reason))
        }
    }

    private func watch() {
        let (status, failure) = HeldProcess.waitForEnd(of: process) { count() }
        state.withLock { state in
            state.waitStatus = status
            guard failure != 0, state.problem == nil else { return }
            let reason = String(cString: strerror(failure))
            state.problem = HeapCensusError("cannot take a census of the heap at the command's end: ptrace: \(reason)")
        }
    }

    private func count() {
        let census = Result { () throws(HeapCensusError) in try HeapCensus.take(of: process) }
        state.withLock { state in
            switch census {
            case .success(let census):
                // A scan takes all private memory for used.
                func rank(_ census: HeapCensus) -> (Int, Int) { (census.way == .scan ? 0 : 1, census.usedBytes) }
                if state.largest.map({ rank(census) >= rank($0) }) ?? true { state.largest = census }
            case .failure(let error): state.problem = state.problem ?? error
            }
        }
    }

    /// Resident pages less those of files, from `/proc/PID/statm`.
    private var anonymousPages: Int? {
        let pages = (ControlFile.text("/proc/\(process)/statm") ?? "").split(separator: " ").compactMap { Int($0) }
        return pages.count > 2 ? pages[1] - pages[2] : nil
    }
}

/// The moments at which a growing process is worth another census. Their number grows with the logarithm of the size, so
/// that all censuses together cost a few times as much as the last.
struct GrowthTrigger {
    private var last = 0

    /// Returns true if the process has grown by a quarter since the last time.
    mutating func isDue(_ size: Int) -> Bool {
        guard size > last + last / 4 else { return false }
        last = size
        return true
    }
}
