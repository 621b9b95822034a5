import Foundation
import Plimsoll
import Testing

@testable import PlimsollLinux

/// The doctor command's report about another process.
@Suite struct ForeignProcessTests {
    /// Returns a process 4711 on the files of `machine`; with mounts of its own, its files are below `root`.
    private static func process(_ machine: [String: String], isApart: Bool, environment: String = "") throws -> (
        process: ForeignProcess, fixture: Fixture
    ) {
        var files: [String: String] = ["/proc/4711/environ": environment]
        for (path, text) in machine {
            if path.hasPrefix("/proc/self/") {
                files[path.replacing("/proc/self/", with: "/proc/4711/")] = text
            } else {
                let text = path.hasSuffix("cgroup.procs") ? text.replacing("42", with: "4711") : text
                files[path.hasPrefix("/proc/") || !isApart ? path : "/proc/4711/root" + path] = text
            }
        }
        let fixture = Fixture(files)
        // A zero separates the variables, which no C string can hold.
        try Data(environment.utf8).write(to: URL(fileURLWithPath: fixture.root + "/proc/4711/environ"))
        return (try #require(ForeignProcess(4711, HostKernel(root: fixture.root), isApart: isApart)), fixture)
    }

    @Test(arguments: [false, true]) func `the limit, usage and stall are those of the other process's group`(isApart: Bool) throws {
        let (process, fixture) = try Self.process(Machines.version2(), isApart: isApart)
        let reading = try process.read(at: .zero), capabilities = process.capabilities
        #expect(reading.limit == .mebibytes(512) && reading.usage == .mebibytes(100) && reading.stall != nil)
        #expect(capabilities.support == .ownGroup && capabilities["resident"]?.detail == "/proc/4711/statm", "\(capabilities)")
        #expect(capabilities["stall trigger"]?.isLive == false && capabilities["stall trigger"]?.detail.hasPrefix("not probed") == true)
        #expect(capabilities["announced"]?.detail == "$MEMORY_PRESSURE_WATCH is not set")
        withExtendedLifetime(fixture) {}
    }

    @Test func `another process's announcement path is named, but not opened`() throws {
        let (process, fixture) = try Self.process(
            Machines.version2(), isApart: false, environment: "HOME=/\0MEMORY_PRESSURE_WATCH=/run/watch\0")
        let announced = try #require(process.capabilities["announced"])
        #expect(!announced.isLive && announced.detail.contains("/run/watch"), "\(announced)")
        withExtendedLifetime(fixture) {}
    }

    @Test func `a missing process gives no reading`() {
        let fixture = Fixture(Machines.version2())
        #expect(ForeignProcess(4711, HostKernel(root: fixture.root), isApart: false) == nil)
    }

    @Test func `a foreign process's source opens nothing for writing, writes nothing and connects to nothing`() {
        let fixture = Fixture(["/a": "as it was"]), kernel = ProcessKernel(host: HostKernel(root: fixture.root), process: 4711, isApart: false)
        #expect(kernel.open("/a", .writing) == -EACCES && kernel.open("/a", .both) == -EACCES && kernel.connect("/a") == -EACCES)
        #expect(kernel.write([65], to: "/a") != nil && kernel.contents(of: "/a") == .success(Array("as it was".utf8)))
    }
}
