import Glibc
import Plimsoll
import Synchronization

/// Memory that is asked for and touched at a given speed, and kept.
final class Ramp: Sendable {
    private static let chunk = 1 << 20

    private let left: Atomic<Int>
    private let taken = Atomic<Int>(0)
    private let bytesPerSecond: Double?
    private let threads: Int
    private let demand: Demand?

    /// - Parameter demand: is told of each chunk.
    init(_ size: ByteCount, bytesPerSecond: Double?, threads: Int = 1, demand: Demand? = nil) {
        left = Atomic(size.bytes)
        self.bytesPerSecond = bytesPerSecond
        self.threads = threads
        self.demand = demand
    }

    /// Takes it all; returns when everything is touched.
    func run() {
        let others = (1..<threads).compactMap { _ in PlainThread { [self] in climb() } }
        climb()
        for thread in others { thread.join() }
    }

    private func climb() {
        let start = SteadyClock.now
        while left.wrappingSubtract(Self.chunk, ordering: .relaxed).oldValue > 0 {
            guard let chunk = mmap(nil, Self.chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), chunk != MAP_FAILED else {
                // No limit of the group does this: address space or the machine itself has run out.
                Output.error("plimsoll: mmap: \(String(cString: strerror(errno)))")
                exit(1)
            }
            let page = Int(sysconf(Int32(_SC_PAGESIZE)))
            for offset in stride(from: 0, to: Self.chunk, by: page) { chunk.storeBytes(of: 1, toByteOffset: offset, as: UInt8.self) }
            let total = taken.wrappingAdd(Self.chunk, ordering: .relaxed).newValue
            demand?.add(Self.chunk)
            if let bytesPerSecond { SteadyClock.sleep(until: start + .seconds(Double(total) / bytesPerSecond)) }
        }
    }
}
