import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollLifecycle
import PlimsollLinux

/// One of four processes whose caches share memory. Writes the results to a file.
struct MachineUnitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_worth-unit", abstract: "Part of `plimsoll-bench worth --machine`.", shouldDisplay: false)

    @Option(help: "Number of the process, from 0.") var number: Int
    @Option(help: "File for the results.") var results: String
    @Option(help: "Requests in each half.") var count: Int
    @Option(help: "Requests a second.") var rate: Double
    @Option(help: "Bytes to allocate for some seconds in the middle of the second half.") var burst: ByteCount = .zero
    @Flag(help: "Divide memory by worth.") var byWorth = false

    func run() throws {
        let signals = SignalQueue()
        let manager = ResourceManager(
            source: LinuxPressureSource(), policy: PressurePolicy(division: byWorth ? .byWorth : .proportional))
        let cache = TimedCache<[UInt8]>(MachineMix.names[number], loadTime: MachineMix.loads[number] * 1000) { _, _ in
            MachineMix.entryBytes
        }
        let registration = manager.register(cache)
        let link = byWorth ? try SupervisorLink(manager) : nil
        Task { try await manager.run() }
        let player = PlainThread { [self] in
            do { try play(cache.cache) } catch { Output.problem("\(error)") }
        }
        player?.detach()
        while !(signals.next(within: .seconds(3600)).map(SignalQueue.endings.contains) ?? false) {}
        link?.close()
        withExtendedLifetime((registration, link)) {}
    }

    private func play(_ cache: PurgeableCache<UInt64, [UInt8]>) throws {
        var lines = ""
        for half in 0...1 {
            let trace = MachineMix.trace(number, half: half, count: count)
            let began = SteadyClock.now, step = max(1, Int(rate / 100))
            var misses = 0, held = 0.0, samples = 0.0, ballast: [UInt8] = []
            for (index, key) in trace.requests.enumerated() {
                let id = UInt64(half) << 32 | UInt64(key)
                if cache.value(forKey: id) == nil {
                    misses += 1
                    cache.insert([UInt8](repeating: 1, count: MachineMix.valueBytes), forKey: id)
                }
                guard index % step == 0 else { continue }
                held += Double(cache.heldBytes)
                samples += 1
                if half == 1, burst > .zero {
                    let part = Double(index) / Double(count)
                    if part > 0.5, part < 0.55, ballast.isEmpty { ballast = [UInt8](repeating: 1, count: burst.bytes) }
                    if part > 0.55 { ballast = [] }
                }
                SteadyClock.sleep(until: began + .seconds(Double(index) / rate))
            }
            lines += "\(misses) \(Int(held / max(1, samples)))\n"
            withExtendedLifetime(ballast) {}
        }
        try File.write(lines, to: results)
    }
}
