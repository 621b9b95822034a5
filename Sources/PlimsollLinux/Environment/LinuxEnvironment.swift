#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll
import PlimsollLifecycle
import Synchronization

/// The kernel as an environment source: the wall clock, the time zone, files, devices and the power supply.
///
/// Without watches there is no file and no thread. With watches one thread, "plimsoll-env", sleeps until an event
/// comes; nothing is polled periodically. Failures are retried after one second, doubling up to a minute. Values that
/// may have changed meanwhile are read again then.
///
/// Mutable state: all behind one lock. The lock is held during the kernel calls for watching, and never around user
/// code. The sink is called under another lock, for which only `collect` waits; the sink only counts.
final class LinuxEnvironment: EnvironmentSource {
    typealias Kind = EnvironmentChange.Kind
    typealias Sink = @Sendable (Kind, Int) -> Void

    struct State {
        var sink: Sink?
        var counts: [Kind: Int] = [:]
        var files: PathWatches
        var clock: ClockWatch
        var devices: DeviceWatch
        var wakeup: Wakeup?
        var hasThread = false
        /// True if no thread could be started.
        var hasNoThread = false

        var isEmpty: Bool { counts.isEmpty }
    }

    let state: Mutex<State>
    /// Held while events are read and delivered. So when `collect` returns, events read by another thread have been
    /// delivered too.
    private let delivery = Mutex(())
    let kernel: any EnvironmentKernel
    /// `$TZ`, which takes precedence over `/etc/localtime`.
    let zoneVariable: String?
    /// The process that owns the threads and files. A forked child has neither the thread nor a right to the events.
    private let process: Int32

    init(_ kernel: any EnvironmentKernel, zone: String?) {
        self.kernel = kernel
        zoneVariable = zone
        process = kernel.processID
        state = Mutex(State(files: PathWatches(kernel), clock: ClockWatch(kernel), devices: DeviceWatch(kernel)))
    }

    private var isForked: Bool { kernel.processID != process }
    var now: Duration { kernel.clocks.boot }

    func start(_ sink: @escaping Sink) { state.withLock { $0.sink = sink } }

    func watch(_ kind: Kind) -> Bool {
        guard !isForked, kind.isRead else { return false }
        let now = now
        let (starts, wakeup): (Bool, Wakeup?) = state.withLock { state in
            state.counts[kind, default: 0] += 1
            guard state.counts[kind] == 1 else { return (false, nil) }
            if let paths = paths(for: kind) { state.files.add(kind, paths, at: now) }
            if ClockWatch.served.contains(kind) { state.clock.add(kind, at: now) }
            if Self.isDevice(kind) { state.devices.add(kind, at: now) }
            let wakeup = state.wakeup ?? Wakeup(kernel)
            state.wakeup = wakeup
            defer { state.hasThread = true }
            return (!state.hasThread, wakeup)
        }
        // The thread must start to poll the new files.
        wakeup?.ring()
        if starts { startThread() }
        return true
    }

    func unwatch(_ kind: Kind) {
        if isForked { return }
        let now = now
        let wakeup: Wakeup? = state.withLock { state in
            guard let count = state.counts[kind] else { return nil }
            state.counts[kind] = count > 1 ? count - 1 : nil
            guard count == 1 else { return nil }
            state.files.remove(kind)
            state.clock.remove(kind, at: now)
            state.devices.remove(kind)
            return state.wakeup
        }
        wakeup?.ring()
    }

    func collect() {
        if !isForked { receive(asked: true) }
    }

    private static func isDevice(_ kind: Kind) -> Bool {
        if case .device = kind { return true }
        return kind == .power
    }

    // MARK: The thread

    private func startThread() {
        let isStarted = Thread.start("plimsoll-env") { self.run() }
        state.withLock { state in
            state.hasNoThread = !isStarted
            if !isStarted { state.hasThread = false }
        }
    }

    private func run() {
        let files = UnsafeMutableBufferPointer<pollfd>.allocate(capacity: 4)
        defer { files.deallocate() }
        while let wait = prepare(files) {
            let ready = kernel.wait(for: files, nanoseconds: wait.inNanoseconds)
            // The kernel refuses to wait: sleep rather than spin.
            if ready < 0 { usleep(10_000) }
            state.withLock({ $0.wakeup })?.waited(files[0].revents)
            receive(asked: false)
        }
    }

    /// Prepares the files to poll and returns the time to wait. Returns `nil` if there is no watch any more; then the
    /// thread's state is already removed.
    private func prepare(_ files: UnsafeMutableBufferPointer<pollfd>) -> Duration? {
        let now = now
        return state.withLock { state in
            if state.isEmpty {
                state.files.close()
                state.clock.close()
                state.devices.close()
                (state.wakeup, state.hasThread) = (nil, false)
                return nil
            }
            // Longer than any thread of a process can wait.
            var wait = Duration.seconds(1 << 30)
            var source = EventSource(POLLIN)
            source.file = state.wakeup?.file ?? -1
            // Without an eventfd the flag is checked periodically, until one can be made.
            if source.file < 0 {
                if state.wakeup?.repair() == true { wait = .zero }
                source.file = state.wakeup?.file ?? -1
                if source.file < 0 { wait = min(wait, .seconds(1)) }
            }
            for (slot, source) in [
                source, state.files.eventSource, state.clock.eventSource, state.devices.eventSource,
            ].enumerated() {
                files[slot] = pollfd(
                    fd: source.isPollable(at: now) ? source.file : -1, events: source.events, revents: 0)
                if let rest = source.rest(at: now) { wait = min(wait, max(rest, .milliseconds(1))) }
            }
            for retry in [state.files.retry, state.clock.retry, state.devices.retry] {
                if let again = retry.wait(at: now) { wait = min(wait, max(again, .milliseconds(1))) }
            }
            return wait
        }
    }

    /// Reads waiting events and delivers them.
    private func receive(asked: Bool) { delivery.withLock { _ in collectAndNotify(asked: asked) } }

    private func collectAndNotify(asked: Bool) {
        let now = now
        let (counts, sink): ([Kind: Int], Sink?) = state.withLock { state in
            var counts = state.files.collect(at: now)
            // The timer was set by the old zone, which may have changed.
            if counts[.timeZone] != nil { state.clock.arm(at: now) }
            counts.merge(state.clock.collect(at: now)) { $0 + $1 }
            counts.merge(state.devices.collect(at: now)) { $0 + $1 }
            for kind in state.files.repair(at: now, asked: asked) { counts[kind, default: 0] += 1 }
            for kind in state.clock.repair(at: now, asked: asked) { counts[kind, default: 0] += 1 }
            for kind in state.devices.repair(at: now, asked: asked) { counts[kind, default: 0] += 1 }
            return (counts, state.sink)
        }
        for (kind, events) in counts { sink?(kind, events) }
    }
}

/// Retry state of a broken watch: a back-off of one second, doubling up to a minute. Lasting errors are not retried.
struct RetryState {
    /// The last error; `nil` if the watch works.
    private(set) var failure: KernelError?
    private var backOff = BackOff()

    mutating func failed(_ number: Int, at now: Duration) {
        let failure = KernelError(number: Int32(clamping: abs(number)))
        self.failure = failure
        backOff.failed(at: now)
    }

    mutating func isWhole() {
        failure = nil
        backOff.recovered()
    }

    /// Returns true if a retry is allowed now. Lasting errors are retried only if `asked`.
    func isDue(at now: Duration, asked: Bool) -> Bool {
        asked || (failure?.isLasting != true && backOff.isOver(at: now))
    }

    /// Returns the time until the next retry; `nil` if there is nothing to retry.
    func wait(at now: Duration) -> Duration? {
        guard let failure, !failure.isLasting else { return nil }
        return backOff.remaining(at: now) ?? .zero
    }
}
#endif
