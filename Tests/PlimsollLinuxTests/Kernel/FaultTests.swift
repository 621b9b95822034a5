import Glibc
import Plimsoll
import Testing

@testable import PlimsollLinux

/// The Nth call fails once, or all calls from the Nth on fail, for every N until no call is left to fail.
@Suite struct FaultTests {
    static let machines: [(name: String, files: [String: String])] = [
        ("version 2", Machines.version2(high: "471859200")), ("hybrid", Machines.hybrid()),
    ]

    @Test(arguments: ScriptedKernel.Persistence.allCases, [ENODEV, EMFILE])
    func `any failing call gives a reading or an error, a reason for each dead signal, and no spinning`(
        persistence: ScriptedKernel.Persistence, failure: Int32
    ) throws {
        for (name, files) in Self.machines {
            var finished = false
            for nth in 1...1000 {
                let kernel = ScriptedKernel(files)
                kernel.edit {
                    $0.failingCall = nth
                    $0.persistence = persistence
                    $0.failure = failure
                    $0.kinds["/run/fifo"] = .fifo
                }
                let driver = SourceDriver(kernel, options: .init(setsHigh: true), environment: .init(watch: "/run/fifo", write: "YQ=="))
                var readings = 0
                let waits = 12
                for _ in 0..<waits {
                    if let reading = try? driver.read(after: .milliseconds(700)) {
                        readings += 1
                        if let limit = reading.limit, let available = reading.available { #expect(available <= limit && available >= .zero) }
                    }
                    if persistence == .once || kernel.ask({ !$0.faultWasReached }) { driver.wait(.milliseconds(100)) }
                }
                for signal in driver.source.capabilities.signals { #expect(!signal.detail.isEmpty) }
                guard kernel.ask(\.faultWasReached) else {
                    finished = true
                    #expect(readings == waits)
                    break
                }
                if persistence == .once {
                    // One failure costs at most a few polls, and leaves no signal dead for good.
                    #expect(readings >= waits - 2, "\(name), call \(nth)")
                    for _ in 0..<10 { _ = try? driver.read(after: .seconds(1)) }
                    let reading = try driver.read(after: .seconds(1))
                    #expect(reading.boundary != .machine, "\(name), call \(nth): \(driver.source.capabilities)")
                    #expect(reading.stall != nil && reading.events != nil, "\(name), call \(nth)")
                    let capabilities = driver.source.capabilities
                    for live in ["limit", "usage", "reclaimable", "limit events", "stall", "stall trigger", "announced", "resident"] {
                        #expect(capabilities[live]?.isLive == true, "\(name), call \(nth), \(live): \(capabilities)")
                    }
                }
            }
            #expect(finished, "still failing after 1000 calls")
        }
    }

    @Test func `a descriptor that is another file's after all were closed is not closed, and the control file is opened again`() {
        let kernel = ScriptedKernel(["/control": "1\n", "/socket": ""])
        let file = KernelFile("/control", kernel, TextBuffer())
        let first = file.read(KernelText.bytes), number = file.file
        kernel.edit { state in
            state.open[number] = "/socket"
            state.readRefusals["/socket"] = ESPIPE
        }
        let second = file.read(KernelText.bytes)
        #expect(first == 1 && second == 1 && file.file != number)
        #expect(kernel.ask { $0.open[number] } == "/socket")
    }

    @Test func `a wait that the kernel refuses still lasts`() throws {
        let kernel = ScriptedKernel(Machines.version2())
        let driver = SourceDriver(kernel)
        _ = try driver.read()
        kernel.edit {
            $0.failingCall = 0
            $0.persistence = .forever
        }
        driver.wait(.milliseconds(2))
        #expect(kernel.ask(\.waits) == 1)
    }

    @Test func `a thousand failing polls in a row call the kernel a bounded number of times`() {
        let kernel = ScriptedKernel(Machines.version2())
        let driver = SourceDriver(kernel)
        kernel.edit {
            $0.failingCall = 0
            $0.persistence = .forever
        }
        let before = kernel.ask(\.calls)
        for _ in 0..<1000 { _ = try? driver.read(after: .milliseconds(1)) }
        #expect(kernel.ask(\.calls) - before < 20_000)
        #expect(throws: PressureSourceError.self) { try driver.read(after: .seconds(2)) }
    }
}
