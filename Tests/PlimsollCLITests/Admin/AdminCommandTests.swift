import ArgumentParser
import Foundation
import Plimsoll
import PlimsollLinux
import PlimsollService
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollCLI
@testable import PlimsollDemos

/// The commands that query a running service.
@Suite struct AdminCommandTests {
    @Test(arguments: [
        (["purge"], "Give --all to purge everything"), (["purge", "--all", "--name", "a"], "--all excludes --name"),
        (["purge", "--name", "a", "--tag", "b"], "Only one of --name, --group and --tag is allowed"),
        (["purge", "--bytes", "0"], "--bytes is 0 B"), (["purge", "--up-to", "free"], "allowed are trivial, cheap, expensive, precious"),
        (["simulate", "critical"], "critical needs --for, for example --for 5s"), (["simulate", "critical", "--for", "5"], "--for"),
        (["simulate", "critical", "--for", "2h"], "--for"), (["simulate", "critical", "--for", "70m"], "allowed are seconds from 0"),
        (["simulate", "normal", "--for", "5s"], "normal ends a simulation at once"), (["simulate", "critial", "--for", "5s"], "go with a level"),
        (["simulate", "__##", "--socket", "/s"], "go with a level"), (["simulate", "Critical"], "is not a trace"),
        (["explain", "unit"], "a UNIT needs --audit FILE"), (["explain", "--audit", "file"], "--audit FILE needs a UNIT"),
        (["explain", "unit", "--audit", "file", "--socket", "/s"], "--socket, --json and --last are for a running service"),
        (["explain", "--last", "0"], "allowed is 1 to 256"), (["top", "--interval", "0"], "allowed are seconds from 0.1 to 10"),
        (["size", "file", "--socket", "/s"], "FILE is read; --socket and --json are for a running service"),
        (["record", "file", "--socket", "/s"], "--socket is for --caches"),
    ])
    func `invalid arguments are refused with a list of allowed values`(arguments: [String], sentence: String) {
        do {
            _ = try PlimsollCommand.parseAsRoot(arguments)
            Issue.record("\(arguments) was accepted")
        } catch {
            #expect(PlimsollCommand.exitCode(for: error).rawValue == 64)
            let message = PlimsollCommand.message(for: error)
            #expect(message.contains(sentence), "\(arguments): \(message)")
        }
    }

    @Test(arguments: [
        ["simulate", "__--##"], ["simulate", "critical", "--for", "500ms", "--socket", "/s"], ["simulate", "normal"],
        ["explain", "unit", "--audit", "file"],
        ["explain"], ["explain", "--last", "5", "--json"], ["purge", "--all"], ["purge", "--bytes", "64M", "--up-to", "cheap"],
        ["status", "--socket", "/s"],
        ["top", "--interval", "0.5"], ["caches", "--json"], ["tasks"], ["size"],
        ["size", "file"], ["size", "--socket", "/s", "--json"], ["record", "file", "--caches", "--socket", "/s"],
    ])
    func `the command line distinguishes the old uses from the new ones`(arguments: [String]) throws {
        _ = try PlimsollCommand.parseAsRoot(arguments)
    }

    // MARK: Finding the socket

    private func sockets(_ variables: [String: String], _ files: [String: [String]], dead: Set<String> = []) -> AdminSockets {
        AdminSockets(environment: { variables[$0] }, names: { files[$0] ?? [] }, problem: { dead.contains($0) ? "not listening" : nil })
    }

    @Test func `a runtime directory that ends with a slash has one socket, not two`() throws {
        let files = ["/run/shop/": ["plimsoll.sock"], "/run": ["shop"], "/run/shop": ["plimsoll.sock"]]
        #expect(try sockets(["RUNTIME_DIRECTORY": "/run/shop/"], files).choose() == "/run/shop/plimsoll.sock")
    }

    @Test func `the variable goes before a discovered socket`() throws {
        #expect(try sockets(["PLIMSOLL_SOCKET": "/a"], ["/run": ["x"], "/run/x": ["plimsoll.sock"]]).choose() == "/a")
    }

    @Test(arguments: [
        ([:], ["/run": ["x", "y"], "/run/x": ["plimsoll.sock"]], "/run/x/plimsoll.sock"),
        (["RUNTIME_DIRECTORY": "/run/x:/run/z"], ["/run": ["x"], "/run/x": ["plimsoll.sock"]], "/run/x/plimsoll.sock"),
        (["XDG_RUNTIME_DIR": "/u"], ["/u": ["plimsoll-7.sock", "bus"]], "/u/plimsoll-7.sock"),
        (["XDG_RUNTIME_DIR": "/u"], ["/u": ["shop"], "/u/shop": ["plimsoll.sock"]], "/u/shop/plimsoll.sock"),
        (["XDG_RUNTIME_DIR": "/u"], ["/u": ["plimsoll-7.sock", "plimsoll-8.sock"]], "/u/plimsoll-7.sock"),
    ])
    func `the one socket that answers in a usual place is used`(variables: [String: String], files: [String: [String]], path: String) throws {
        #expect(try sockets(variables, files, dead: ["/u/plimsoll-8.sock"]).choose() == path)
    }

    @Test(arguments: [
        ([:], [:], "cannot find an admin socket (/run/*/plimsoll.sock); name one with --socket PATH or $PLIMSOLL_SOCKET"),
        (
            ["XDG_RUNTIME_DIR": "/u"], ["/u": ["plimsoll-7.sock", "plimsoll-9.sock"]],
            "2 admin sockets answer: name one with --socket PATH or $PLIMSOLL_SOCKET\n  /u/plimsoll-7.sock\n  /u/plimsoll-9.sock"
        ),
        (
            ["XDG_RUNTIME_DIR": "/u"], ["/u": ["plimsoll-8.sock"]],
            "no admin socket answers: name one with --socket PATH or $PLIMSOLL_SOCKET\n  /u/plimsoll-8.sock  (not listening)"
        ),
    ])
    func `no socket or several sockets: the error lists the candidates`(variables: [String: String], files: [String: [String]], sentence: String) {
        do {
            _ = try sockets(variables, files, dead: ["/u/plimsoll-8.sock"]).choose()
            Issue.record("chosen")
        } catch {
            #expect((error as? Failure)?.reason.hasPrefix(sentence) == true, "\(error)")
            #expect((error as? Failure)?.status.rawValue == 69)
        }
    }

    // MARK: Against an endpoint

    private func run(_ arguments: [String]) throws -> (status: Int32, output: [String]) {
        let child = try ChildProcess(RunCommandTests.program, ["plimsoll"] + arguments, readsOutput: true)
        let ending = child.waitForEnd()
        return (ending.status, child.output?.lines() ?? [])
    }

    static let isBuilt = access(RunCommandTests.program, X_OK) == 0

    @Test(.needs(isBuilt, "the program has not been built"))
    func `commands do their work, and the exit status reports the result`() throws {
        let directory = NSTemporaryDirectory() + "pc-\(UUID().uuidString.prefix(8))", path = directory + "/s"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let manager = ResourceManager(source: ScriptedPressureSource())
        let cache = PurgeableCache<Int, [UInt8]>("images") { _, bytes in bytes.count }
        manager.register(cache)
        for key in 0..<4 { cache.insert([UInt8](repeating: 1, count: 1 << 18), forKey: key) }
        let open = AdminEndpoint(manager: manager, path: path, allowsChanges: true), closed = AdminEndpoint(manager: manager, path: path + "2")
        try open.start()
        try closed.start()

        #expect(try run(["status", "--socket", path]).output.contains("caches     1 hold 1 MiB"))
        #expect(try run(["caches", "--socket", path]).output.last?.hasPrefix("images  1 MiB") == true)
        #expect(try run(["tasks", "--socket", path]).status == 0)
        let diagnosis = try run(["doctor", "--socket", path])
        #expect(diagnosis.output.first?.hasPrefix("support: announced") == true && diagnosis.output.contains("caches     1 hold 1 MiB"))
        #expect(try run(["doctor", "--pid", "\(getpid())"]).output.contains { $0.hasPrefix("resident") && $0.hasSuffix("process \(getpid())") })
        #expect(try run(["doctor", "--pid", "2147483647"]).status == 69 && run(["doctor", "--pid", "1", "--socket", path]).status == 64)
        #expect(
            try run(["explain", "--socket", path]).output == ["The manager has not read memory yet: it does not run.", "No action so far."])
        #expect(try run(["top", "--socket", path]).output.count == 24)
        #expect(try run(["purge", "--all", "--socket", path + "2"]).status == 69)
        #expect(cache.count == 4)
        #expect(try run(["purge", "--bytes", "256K", "--socket", path]).status == 0)
        #expect(cache.count == 3)
        #expect(try run(["purge", "--name", "imagse", "--socket", path]).status == 1)
        #expect(try run(["simulate", "critical", "--for", "1s", "--socket", path]).status == 1)
        let (status, output) = try run(["purge", "--name", "imagse", "--json", "--socket", path])
        #expect(status == 1)
        #expect(output == [#"{"code":"absent","error":"no purgeable with the name \"imagse\" is registered; registered: images","ok":false}"#])
        open.stop()
        #expect(try run(["status", "--socket", path]).status == 69)
    }

    @Test(.needs(isBuilt, "the program has not been built"))
    func `answers that come at once are shown at once, and not each with the next one`() async throws {
        let directory = NSTemporaryDirectory() + "pc-\(UUID().uuidString.prefix(8))", path = directory + "/s"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let socket = try PrivateSocket(at: path)
        let child = try ChildProcess(
            RunCommandTests.program, ["plimsoll", "top", "--json", "--socket", path], readsOutput: true, endsWithParent: true)
        var accepted: Int32?
        await until("the command to connect") {
            accepted = socket.accept()?.file
            return accepted != nil
        }
        let connection = try #require(accepted)
        defer { close(connection) }
        let answers = (0..<3).map { #"{"name":"\#($0)","ok":true}"# }
        #expect(Output.write(answers.joined(separator: "\n") + "\n", to: connection))
        var lines: [String] = []
        await until("all answers") {
            lines += child.output?.lines() ?? []
            return lines.count == 3
        }
        #expect(lines == answers)
    }

    @Test(.needs(isBuilt, "the program has not been built"))
    func `a service that divides memory by worth is recorded, and plimsoll size reads the recording`() async throws {
        let directory = NSTemporaryDirectory() + "pc-\(UUID().uuidString.prefix(8))", path = directory + "/s"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let policy = PressurePolicy(thresholds: PressureThresholds(burstReserve: 0), division: .byWorth)
        try await RunningManager.run(policy: policy) { running in
            let caches = ["pages", "users"].map { name in PurgeableCache<Int, Int>(name) { _, value in value } }
            let registrations = caches.map { running.manager.register($0) }
            var random = SeededGenerator(seed: usualSeed(4))
            for _ in 0..<20 where running.manager.status.holders.contains(where: { $0.worth == nil }) {
                await running.available(.mebibytes(290), after: .seconds(11))
                for cache in caches {
                    for _ in 0..<20_000 {
                        let draws = (0..<3).map { _ in Double.random(in: 0..<1, using: &random) }
                        let key = Int(100_000 * draws.reduce(1, *))
                        if cache.value(forKey: key) == nil { cache.insert(1000, forKey: key) }
                    }
                }
            }
            let endpoint = AdminEndpoint(manager: running.manager, path: path)
            try endpoint.start()
            defer { endpoint.stop() }
            let table = try run(["caches", "--socket", path]).output
            #expect(
                table.contains { $0.hasPrefix("name ") && $0.contains(" share ") } && table.contains { $0.hasPrefix("pages  ") && $0.contains("|") },
                "\(table)")
            let now = try run(["size", "--socket", path])
            #expect(now.status == 0 && now.output.first?.contains("caches with a known curve: pages, users") == true, "\(now)")
            let file = directory + "/peak.jsonl"
            // The second record comes after a second or, on a busy machine, later; the third would come after two seconds.
            #expect(try run(["record", file, "--caches", "--socket", path, "--for", "1.9"]).status == 0)
            #expect(try Recording(parsing: String(contentsOfFile: file, encoding: .utf8)).caches.count == 2)
            let recorded = try run(["size", file])
            // The manual clock stands still, so the recorded memory is the present memory.
            #expect(recorded.status == 0 && recorded.output == now.output, "\(recorded) \(now)")
            #expect(try run(["replay", file]).status == 0)
            // A socket that does not answer destroys no earlier recording.
            endpoint.stop()
            #expect(try run(["record", file, "--caches", "--socket", path, "--for", "1"]).status == 69)
            #expect(try run(["size", file]).output == recorded.output)
            withExtendedLifetime(registrations) {}
        }
    }
}
