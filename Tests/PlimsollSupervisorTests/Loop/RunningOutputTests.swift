import CPlimsollSupervisor
import Glibc
import Plimsoll
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// A supervisor whose logs and journal no process reads.
@Suite(.serialized) struct RunningOutputTests {
    /// Opens a FIFO for reading and fills the FIFO, which no process reads.
    private func fullFIFO(_ path: String) -> Int32 {
        #expect(mkfifo(path, 0o600) == 0)
        let reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
        let writer = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)
        let bytes = [UInt8](repeating: 10, count: 4096)
        while write(writer, bytes, bytes.count) > 0 {}
        close(writer)
        return reader
    }

    @Test func `an unread journal blocks no decision, no restart and no end`() async throws {
        let files = Fixture.Directory(), path = "\(files.path)/journal"
        let reader = fullFIFO(path)
        defer {
            close(reader)
            unlink(path)
        }
        let units = [ServiceUnit.shell("web"), .shell("hog") { $0.role = .background }, .shell("job") { $0.restart = .always }]
        let fleet = try RunningFleet(units) { ($0.policy.leaveTime, $0.audit) = (.milliseconds(50), path) }
        #expect(await fleet.waits { units.allSatisfy { fleet.state($0.name) == .running } })
        fleet.push()
        #expect(await fleet.waits { fleet.records.count > 2 })
        func main() -> Int32? { Int32(fleet.text("job.process").prefix { $0 != " " }) }
        fleet.push(0.1)
        #expect(await fleet.waits { main() != nil })
        let first = try #require(main())
        kill(first, SIGKILL)
        #expect(await fleet.waits { main().map { $0 != first } ?? false })
        #expect(await fleet.stop())
    }

    @Test(.needs(RunningShortageTests.program != nil, "the program is not built"))
    func `a command with unread output runs the units, and ends on request`() async throws {
        let files = Fixture.Directory(), prefix = Workbench.prefix()
        // Each run of the unit gives a line for standard error, which is as full as standard output.
        let text =
            "version: 1\nunits:\n  web:\n    command: [/bin/sh, -c, 'echo run >>\(files.path)/runs; exec sleep 1000']\n    restart: always\n"
            + "  none:\n    command: [/nonexistent/program]\n    restart: always\n"
        let file = open("\(files.path)/units.yaml", O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        #expect(write(file, text, text.utf8.count) == text.utf8.count)
        close(file)
        let reader = fullFIFO("\(files.path)/fifo")
        let output = open("\(files.path)/fifo", O_WRONLY | O_CLOEXEC)
        defer { for file in [reader, output] { close(file) } }
        let command = [
            try #require(RunningShortageTests.program), "supervise", "\(files.path)/units.yaml", "--directory", files.path, "--prefix", prefix,
        ]
        var launch = Child.Launch(command)
        (launch.environment, launch.output, launch.errors) = (["PATH": "/usr/bin:/bin"], output, output)
        let supervisor = try Child.start(launch)
        defer { supervisor.signal(SIGKILL) }
        func runs() -> Int { (try? GroupText.read("\(files.path)/runs").get()).map { $0.count { $0 == 10 } } ?? 0 }
        func main() -> Int32? { ProcessNote(files.path, "web").read()?.pid }
        #expect(await until("the unit runs") { runs() == 1 && main() != nil })
        if let main = main() { kill(main, SIGKILL) }
        #expect(await until("the unit runs again") { runs() == 2 })
        supervisor.signal(SIGTERM)
        #expect(await until("its end") { supervisor.ending != nil })
        #expect(supervisor.ending == .exited(0))
        for name in RunningFleet.names(in: files.path) { unlink("\(files.path)/\(name)") }
    }
}
