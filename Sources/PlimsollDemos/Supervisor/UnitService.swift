import Glibc
import Plimsoll
import PlimsollLifecycle
import PlimsollLinux
import Synchronization

/// A service for the supervisor's demo, tests and benchmarks. The service accepts orders, holds memory, and grows if
/// so configured.
///
/// The count of accepted orders is written to a file at once. The difference to the saved count tells afterwards how
/// many orders were lost.
package final class UnitService: Sendable {
    /// Behaviour of a service.
    struct Habits: Sendable {
        var name: String
        /// Directory of the service's state and of the file with the number of accepted orders.
        var directory: String
        /// Memory held from the beginning.
        var size: ByteCount
        /// Memory allocated each second besides, regardless of pressure messages.
        var growth: ByteCount = .zero
        /// Time of shortage after which the service asks to be suspended; `nil` for never.
        var suspendAfter: Duration?
    }

    let manager: ResourceManager
    private let habits: Habits
    private let orders = Counter()
    private let ballast = Mutex<[Ballast]>([])
    private let accepted: Int32

    init(_ habits: Habits) throws {
        self.habits = habits
        // Except for that request, the service does not react to pressure by itself: the supervisor decides.
        let ladder =
            try habits.suspendAfter.map { try EscalationLadder([Rung(at: .warning, after: $0, .suspend)]) } ?? .none
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
            "orders", in: Self.store(habits.name, in: habits.directory),
            snapshot: { [orders] in Array("\(orders.count)".utf8) },
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
    // Unchecked: no code touches the memory once made, and the memory ends with the process.
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

    /// Returns the number of orders that the service had accepted and not saved when it ended.
    package static func lost(_ name: String, in directory: String) throws -> Int {
        guard let accepted = accepted(name, in: directory) else {
            throw Failure.failed("\(acceptedFile(name, in: directory)): \(String(cString: strerror(errno)))")
        }
        // The store wraps the saved count, which stands at the end.
        let bytes = try store(name, in: directory).read("orders") ?? []
        let digits = bytes.reversed().prefix { UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }
        return max(0, accepted - (Int(String(decoding: digits.reversed(), as: UTF8.self)) ?? 0))
    }

    /// Returns the number of orders accepted so far; `nil` if the service has never begun.
    package static func accepted(_ name: String, in directory: String) -> Int? {
        let file = open(acceptedFile(name, in: directory), O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var accepted = 0
        pread(file, &accepted, 8, 0)
        return accepted
    }

    private static func acceptedFile(_ name: String, in directory: String) -> String {
        directory + "/" + name + ".accepted"
    }
    private static func store(_ name: String, in directory: String) -> FileStateStore {
        FileStateStore(directory: directory + "/" + name + ".state")
    }
}
