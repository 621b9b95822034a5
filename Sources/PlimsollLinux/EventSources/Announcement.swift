#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll

/// Listens to the file that the service manager named, and keeps an announcement until the next reading.
final class Announcement {
    /// Limits a busy sender to ten events a second.
    static let pause = Duration.milliseconds(100)

    private(set) var plan: ServiceManagerWatch
    private(set) var eventSource = EventSource(POLLIN)
    /// The reason that the file can't be listened to at present.
    private(set) var failure: String?
    private var isPending = false
    private var confirmation = StallConfirmation()
    private var stallFile: KernelFile?
    private let makePlan: () -> ServiceManagerWatch
    private let kernel: any Kernel
    private let buffer: TextBuffer

    /// Listens to the file that `makePlan` names. `makePlan` is called again while that file can't be reached.
    init(_ kernel: any Kernel, _ buffer: TextBuffer, _ makePlan: @escaping () -> ServiceManagerWatch) {
        self.makePlan = makePlan
        self.kernel = kernel
        self.buffer = buffer
        plan = makePlan()
    }

    deinit { eventSource.closed(kernel) }

    var isLive: Bool { eventSource.file >= 0 }

    /// Opens the watched file, once the back-off is over.
    func arm(at now: Duration) {
        guard eventSource.isToBeArmed(at: now) else { return }
        if case .unreachable = plan {
            plan = makePlan()
            if case .unreachable = plan { eventSource.failed(at: now) }
        }
        guard case .watch(let watch) = plan else { return }
        failure = open(watch)
        if failure != nil {
            eventSource.closed(kernel)
            eventSource.failed(at: now)
        }
    }

    /// Opens the file and writes the requested bytes. Returns the reason if that fails.
    private func open(_ watch: ServiceManagerWatch.Watch) -> String? {
        eventSource.file =
            switch watch.kind {
            case .socket: kernel.connect(watch.path)
            // With both ends of a FIFO open here, the FIFO never reports that the other side has closed.
            case .fifo, .stallFile:
                kernel.open(watch.path, watch.kind == .fifo || !watch.bytes.isEmpty ? .both : .reading)
            }
        if eventSource.file == -EACCES, watch.kind == .fifo { eventSource.file = kernel.open(watch.path, .reading) }
        guard eventSource.file >= 0 else {
            let error = KernelError(number: -eventSource.file)
            eventSource.file = -1
            return "\(watch.path): \(error)"
        }
        if !watch.bytes.isEmpty {
            let taken = watch.bytes.withUnsafeBufferPointer { kernel.write(eventSource.file, $0) }
            if taken < 0 {
                return
                    "writing $MEMORY_PRESSURE_WRITE to \(watch.path): \(KernelError(number: Int32(clamping: -taken)))"
            }
        }
        eventSource.events = Int16(watch.kind == .stallFile ? POLLPRI : POLLIN)
        if watch.kind == .stallFile {
            stallFile = KernelFile(watch.path, kernel, buffer)
            let asked = StallThreshold(watch.bytes.span)
            // The bytes may ask for anything if they can't be parsed. Then any growth confirms.
            confirmation = StallConfirmation(
                isFull: asked?.isFull ?? false, threshold: .microseconds(asked?.stall ?? 1))
            _ = confirmation.confirms(stallTotals())
        }
        return nil
    }

    private func stallTotals() -> PressureReading.StallTotals? { stallFile?.read { PressureReading.StallTotals($0) } }

    /// Handles readiness of the file.
    func handle(_ conditions: Int16, at now: Duration) {
        let isBroken: Bool
        if stallFile != nil {
            isBroken = conditions & Int16(POLLERR | POLLNVAL | POLLHUP) != 0
            if !isBroken, confirmation.confirms(stallTotals()) { isPending = true }
        } else {
            let count = conditions & Int16(POLLIN) != 0 ? kernel.drain(eventSource.file) : 0
            if count > 0 { isPending = true }
            // Ready but empty: the other side has closed.
            isBroken = count <= 0 && count != -Int(EAGAIN)
        }
        guard isBroken else {
            eventSource.rang(at: now, pause: Self.pause)
            return
        }
        if conditions & Int16(POLLNVAL) != 0 { eventSource.file = -1 }
        eventSource.closed(kernel)
        failure = "the other side closed the connection"
        eventSource.failed(at: now)
    }

    /// Returns the announcement since the last call.
    func take() -> PressureLevel? {
        defer { isPending = false }
        return isPending ? .warning : nil
    }
}
#endif
