import Glibc
import Plimsoll
import PlimsollLinux
import Synchronization

/// A service as the supervisor's demo, tests and benchmarks run it: it takes orders, keeps memory, and grows if it is the one that does.
///
/// What it has accepted is written to a file at once, so that whoever judges can tell afterwards what was lost: the difference to what it had saved.
final class UnitService: Sendable {
    /// How it behaves.
    struct Habits: Sendable {
        var name: String
        /// Where it keeps its state, and the number of orders accepted.
        var directory: String
        /// What it holds from the beginning.
        var size: ByteCount
        /// What it takes each second besides, whatever it is told.
        var growth: ByteCount = .zero
        /// How long memory is short before it asks to stand still; `nil` for never.
        var suspendAfter: Duration?
    }

    let manager: ResourceManager
    private let habits: Habits
    private let orders = Counter()
    private let ballast = Mutex<[Ballast]>([])
    private let accepted: Int32

    init(_ habits: Habits) throws {
        self.habits = habits
        // It does nothing about pressure by itself, but perhaps ask: what becomes of it is the supervisor's doing.
        let ladder = try habits.suspendAfter.map { try EscalationLadder([Rung(at: .warning, after: $0, .suspend)]) } ?? .none
        manager = ResourceManager(
            source: LinuxPressureSource(), policy: PressurePolicy(ladder: ladder), time: SteadyClock.timekeeper)
        let path = Self.acceptedFile(habits.name, in: habits.directory)
        accepted = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard accepted >= 0 else { throw Failure.failed("\(path): \(String(cString: strerror(errno)))") }
    }

    deinit { close(accepted) }

    /// Runs until the task is cancelled.
    func run(ready: @Sendable () -> Void) async throws {
        let ticker = Ticker("orders", every: .milliseconds(10)) { [self] _ in accept() }
        manager.lifecycle.pausables.add(ticker)
        manager.lifecycle.preserve(
            "orders", in: Self.store(habits.name, in: habits.directory), snapshot: { [orders] in Array("\(orders.count)".utf8) },
            restore: { [orders] bytes in orders.set(Int(String(decoding: bytes, as: UTF8.self)) ?? 0) })
        hold(habits.size)
        let link = try? SupervisorLink(manager)
        defer { link?.close() }
        try await manager.lifecycle.launch()
        ready()
        if habits.growth > .zero { PlainThread { [self] in grow() }?.detach() }
        try await manager.run()
        ticker.cancel()
    }

    private func accept() {
        orders.add()
        var count = orders.count
        pwrite(accepted, &count, 8, 0)
    }

    // MARK: Memory

    /// Memory that is never given back.
    // Unchecked: nobody touches it once it is made, and it ends with the process.
    private struct Ballast: @unchecked Sendable {
        let memory: RegionMemory
    }

    private func hold(_ size: ByteCount) {
        guard let memory = try? RegionMemory(size) else { return }
        ballast.withLock { $0.append(Ballast(memory: memory)) }
    }

    private func grow() {
        let step = ByteCount.mebibytes(1), pause = Duration.seconds(Double(step.bytes) / Double(habits.growth.bytes))
        var next = SteadyClock.now
        while true {
            hold(step)
            next += pause
            SteadyClock.sleep(until: next)
        }
    }

    // MARK: Judging

    /// Orders that it had accepted and not saved when it ended.
    static func lost(_ name: String, in directory: String) throws -> Int {
        guard let accepted = accepted(name, in: directory) else {
            throw Failure.failed("\(acceptedFile(name, in: directory)): \(String(cString: strerror(errno)))")
        }
        // The store wraps what was saved, which stands at the end.
        let bytes = try store(name, in: directory).read("orders") ?? []
        let digits = bytes.reversed().prefix { UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }
        return max(0, accepted - (Int(String(decoding: digits.reversed(), as: UTF8.self)) ?? 0))
    }

    /// Orders that it has accepted so far; `nil` if it has never begun.
    static func accepted(_ name: String, in directory: String) -> Int? {
        let file = open(acceptedFile(name, in: directory), O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var accepted = 0
        pread(file, &accepted, 8, 0)
        return accepted
    }

    private static func acceptedFile(_ name: String, in directory: String) -> String { directory + "/" + name + ".accepted" }
    private static func store(_ name: String, in directory: String) -> FileStateStore { FileStateStore(directory: directory + "/" + name + ".state") }
}
