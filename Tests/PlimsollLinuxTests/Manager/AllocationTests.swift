import CAllocationCounter
import Glibc
import Plimsoll
import Testing

@testable import PlimsollLinux

/// T27: the code path for a shortage of memory allocates no memory.
@Suite struct AllocationTests {
    static func allocations(_ body: () throws -> Void) rethrows -> UInt64 {
        let before = allocation_count()
        try body()
        return allocation_count() - before
    }

    @Test(arguments: [("version 2", 100), ("version 2", 480), ("hybrid", 100), ("hybrid", 480)])
    func `a thousand warm turns allocate nothing, near the limit and far away`(machine: String, usage: Int) throws {
        var files = machine == "hybrid" ? Machines.hybrid() : Machines.version2()
        for name in [Machines.main + "/memory.current", Machines.v1Group + "/memory.usage_in_bytes"] where files[name] != nil {
            files[name] = "\(usage * Machines.mib)\n"
        }
        for name in files.keys where name.hasSuffix("cgroup.procs") { files[name] = "\(getpid())\n" }
        let fixture = Fixture(files)
        mkfifo(fixture.root + "/fifo", 0o600)
        // With a separate root, opening a file allocates, but a warm source opens no file.
        let source = LinuxPressureSource(kernel: HostKernel(root: fixture.root), environment: .init(watch: "/fifo"))
        func turn(_ index: Int) throws {
            let reading = try source.read(at: .milliseconds(index * 25))
            #expect(reading.limit == .mebibytes(512))
            source.wake()
            source.wait(atMost: .milliseconds(1))
        }
        func quietTurn(_ index: Int) throws {
            _ = try source.read(at: .milliseconds(index * 25))
            source.wake()
            source.wait(atMost: .milliseconds(1))
            _ = source.footprint()
            _ = source.rings
        }
        for index in 0..<50 { try turn(index) }
        for index in 50..<60 { try quietTurn(index) }
        #expect(try Self.allocations { for index in 60..<1060 { try quietTurn(index) } } == 0)
    }

    @Test func `this machine's own kernel is read without allocating, announcements and events included`() throws {
        let source = LinuxPressureSource()
        func turn(_ index: Int) throws {
            _ = try source.read(at: .milliseconds(index * 25))
            source.wait(atMost: .zero)
            _ = source.footprint()
        }
        for index in 0..<60 { try turn(index) }
        #expect(try Self.allocations { for index in 60..<1060 { try turn(index) } } == 0)
    }
}
