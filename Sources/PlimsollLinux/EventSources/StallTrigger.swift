#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll

/// A stall threshold in the kernel's syntax: `some 50000 500000` and a terminator.
struct StallThreshold: Equatable {
    var isFull = false
    /// Stall within a window, in microseconds.
    var stall: Int
    /// Length of the window, in microseconds.
    var window: Int

    /// A tenth of half a second. With privilege the kernel checks ten times a window, so events come after 60 to 140 ms
    /// (measured).
    static let quick = StallThreshold(stall: 50_000, window: 500_000)
    /// A tenth of two seconds: the shortest window without `CAP_SYS_RESOURCE`. Events come after 0.1 to 3.4 s.
    static let slow = StallThreshold(stall: 200_000, window: 2_000_000)
}

extension StallThreshold {
    /// Parses `some 200000 2000000`, with or without a terminator; returns `nil` for anything else.
    init?(_ text: Span<UInt8>) {
        guard text.count > 5 else { return nil }
        if KernelText.matches(text, 0..<5, "full ") {
            isFull = true
        } else if !KernelText.matches(text, 0..<5, "some ") {
            return nil
        }
        var position = 5
        guard let stall = KernelText.number(in: text, at: &position), position < text.count,
            text[position] == KernelText.space
        else { return nil }
        position += 1
        guard let window = KernelText.number(in: text, at: &position),
            position == text.count || text[position] <= KernelText.space
        else {
            return nil
        }
        self.stall = Int(clamping: stall)
        self.window = Int(clamping: window)
    }
}

/// Accepts a stall event only if the total has grown by the threshold (K5).
///
/// The kernel's first event may be false: the window starts from a counter other than the evaluated one. The baseline
/// moves with rejected events too; otherwise slow stalls would add up.
struct StallConfirmation {
    var isFull = false
    var threshold = Duration.zero
    private var baseline: Duration?

    init(isFull: Bool = false, threshold: Duration = .zero) { (self.isFull, self.threshold) = (isFull, threshold) }

    mutating func confirms(_ totals: PressureReading.StallTotals?) -> Bool {
        guard let totals else { return false }
        let total = isFull ? totals.full : totals.some
        defer { baseline = total }
        guard let baseline else { return false }
        return total - baseline >= threshold
    }
}

/// The kernel's stall trigger on one `memory.pressure` file. Ends a wait at most once a window. An optimisation: totals
/// are read anyway.
final class StallTrigger {
    /// The kernel itself sends at most one event a window.
    static let pause = Duration.milliseconds(100)

    private(set) var eventSource = EventSource(POLLPRI)
    /// The accepted threshold; `nil` if none was accepted.
    private(set) var threshold: StallThreshold?
    /// The reason that the trigger is not armed.
    private(set) var failure: KernelError?
    private var confirmation = StallConfirmation()
    private let kernel: any Kernel
    let path: String

    init(_ path: String, _ kernel: any Kernel) {
        self.path = path
        self.kernel = kernel
    }

    deinit { eventSource.closed(kernel) }

    /// Tries the quick threshold, then the one that needs no privilege. `totals` are those of the same file now.
    func arm(_ totals: PressureReading.StallTotals?, at now: Duration) {
        eventSource.closed(kernel)
        threshold = nil
        for wanted in [StallThreshold.quick, .slow] {
            // A file holds one trigger for good (K4), so each try opens the file anew.
            let file = kernel.open(path, .both)
            guard file >= 0 else {
                failure = KernelError(number: -file)
                break
            }
            var text = TextWriter()
            text.add("some ")
            text.add(wanted.stall)
            text.add(byte: KernelText.space)
            text.add(wanted.window)
            // The kernel overwrites the last byte of the text (K1).
            text.add(byte: 0)
            failure = text.write(to: file, kernel)
            if failure == nil {
                eventSource.file = file
                threshold = wanted
                confirmation = StallConfirmation(isFull: false, threshold: .microseconds(wanted.stall))
                _ = confirmation.confirms(totals)
                return
            }
            kernel.close(file)
            if failure?.number != EINVAL { break }
        }
        eventSource.failed(at: now)
    }

    /// Handles readiness of the file. Returns true if the totals, read by `totals`, confirm the event.
    func handle(_ conditions: Int16, at now: Duration, totals: () -> PressureReading.StallTotals?) -> Bool {
        guard conditions & Int16(POLLERR | POLLNVAL | POLLHUP) == 0 else {
            // No trigger, stall accounting off, or the group is gone. The file reports this state forever (K9).
            if conditions & Int16(POLLNVAL) != 0 { eventSource.file = -1 }
            eventSource.closed(kernel)
            threshold = nil
            failure = KernelError(number: ENODEV)
            eventSource.failed(at: now)
            return false
        }
        eventSource.rang(at: now, pause: Self.pause)
        return confirmation.confirms(totals())
    }
}
#endif
