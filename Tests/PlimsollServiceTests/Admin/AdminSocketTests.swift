import Foundation
import Plimsoll
import PlimsollLinux
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import PlimsollService

/// The address of an admin endpoint, and the clients that may connect.
@Suite struct AdminSocketTests {
    private let manager = ResourceManager(source: ScriptedPressureSource())

    private func endpoint(_ path: String) -> AdminEndpoint { AdminEndpoint(manager: manager, path: path) }

    /// Returns the error of a failed start; `nil` if the start succeeds.
    private func failure(_ path: String) -> AdminError? {
        do {
            try endpoint(path).start()
            return nil
        } catch { return error }
    }

    @Test(arguments: [
        (["RUNTIME_DIRECTORY": "/run/shop"], "/run/shop/plimsoll.sock"),
        (["RUNTIME_DIRECTORY": "/run/shop:/run/other", "XDG_RUNTIME_DIR": "/run/user/7"], "/run/shop/plimsoll.sock"),
        (["RUNTIME_DIRECTORY": "", "XDG_RUNTIME_DIR": "/run/user/7/"], "/run/user/7/plimsoll-42.sock"),
        (["XDG_RUNTIME_DIR": "/run/user/7"], "/run/user/7/plimsoll-42.sock"),
    ])
    func `the standard path is in the directory from the service manager`(variables: [String: String], path: String) throws {
        #expect(try AdminPath.standard(environment: { variables[$0] }, process: 42) == path)
    }

    @Test(arguments: [
        ([:], "neither $RUNTIME_DIRECTORY nor $XDG_RUNTIME_DIR is set; set RuntimeDirectory= in the unit, or PLIMSOLL_ADMIN_SOCKET to a path"),
        (["RUNTIME_DIRECTORY": "shop"], "$RUNTIME_DIRECTORY is \"shop\", which is not an absolute path"),
        (["XDG_RUNTIME_DIR": "here"], "$XDG_RUNTIME_DIR is \"here\", which is not an absolute path"),
    ])
    func `an environment without such a directory gives no path and names the remedy`(variables: [String: String], sentence: String) {
        do throws(AdminError) {
            _ = try AdminPath.standard(environment: { variables[$0] }, process: 42)
            Issue.record("accepted")
        } catch {
            #expect(error.kind == .path)
            #expect(error.description.contains(sentence), "\(error)")
        }
    }

    @Test func `the socket is the owner's alone, under any umask`() async throws {
        try await AdminFixture.withDirectory { directory in
            let endpoint = endpoint(directory + "/s")
            try endpoint.start()
            var status = stat()
            #expect(lstat(directory + "/s", &status) == 0)
            #expect(status.st_mode & 0o7777 == 0o600)
            #expect(status.st_mode & S_IFMT == S_IFSOCK)
            #expect(endpoint.path == directory + "/s")
            endpoint.stop()
            #expect(lstat(directory + "/s", &status) != 0)
            #expect(endpoint.path == nil)
            try endpoint.start()
            #expect(try AdminClient(path: directory + "/s").answer(to: AdminRequest(.status)).ok)
        }
    }

    @Test func `a client waits for a change for as long as the service may take, and for a status no longer than told`()
        async throws
    {
        for command in AdminRequest.Command.allCases {
            let isEnough = command.patience > AdminCommandHandler.activationPatience
            #expect(isEnough == command.isSlow && (isEnough || command.patience == .zero), "\(command)")
        }
        try await AdminFixture.run { fixture in
            var purge = AdminRequest(.purge)
            purge.all = true
            // Without patience, this client would give up before the purge's thread has begun.
            let answer = try AdminClient(path: fixture.path, timeLimit: .zero).answer(to: purge)
            #expect(answer.ok)
        }
    }

    @Test func `a released endpoint leaves no socket`() async throws {
        try await AdminFixture.withDirectory { directory in
            var one: AdminEndpoint? = endpoint(directory + "/s")
            try one?.start()
            one = nil
            #expect(access(directory + "/s", F_OK) != 0)
        }
    }

    @Test func `a dead process's socket is replaced`() async throws {
        try await AdminFixture.withDirectory { directory in
            let path = directory + "/s"
            leave(path)
            #expect(access(path, F_OK) == 0)
            #expect(throws: AdminError.self) { try AdminClient(path: path) }
            let endpoint = endpoint(path)
            try endpoint.start()
            #expect(try AdminClient(path: path).answer(to: AdminRequest(.tasks)).ok)
        }
    }

    @Test func `a socket with a listener is left alone, and so is a successor's`() async throws {
        try await AdminFixture.withDirectory { directory in
            let path = directory + "/s", first = endpoint(path)
            try first.start()
            try first.start()
            let refusal = failure(path)
            #expect(refusal?.kind == .occupied)
            #expect(refusal?.description == "cannot listen at \(path) because process \(getpid()) already does; end it, or choose another path")
            #expect(try AdminClient(path: path).answer(to: AdminRequest(.status)).ok)

            unlink(path)
            let second = endpoint(path)
            try second.start()
            first.stop()
            #expect(try AdminClient(path: path).answer(to: AdminRequest(.status)).ok)
        }
    }

    @Test func `the lock on the directory ends with the start, even if a process forked meanwhile has the descriptor`() async throws {
        try await AdminFixture.withDirectory { directory in
            let path = directory + "/s", copy = Mutex<Int32?>(nil), isOver = Mutex(false)
            let name = "/" + URL(fileURLWithPath: directory).lastPathComponent
            @Sendable func isDirectory(_ file: Int32) -> Bool {
                (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(file)"))?.hasSuffix(name) == true
            }
            // A copy of the descriptor stands for the one that a forked process has.
            Foundation.Thread.detachNewThread {
                while !isOver.withLock({ $0 }), copy.withLock({ $0 == nil }) {
                    for file in Int32(3)..<512 where isDirectory(file) {
                        let new = fcntl(file, F_DUPFD_CLOEXEC, 3)
                        if new >= 0, isDirectory(new) { return copy.withLock { $0 = new } }
                        close(new)
                    }
                }
            }
            defer {
                isOver.withLock { $0 = true }
                if let copy = copy.withLock({ $0 }) { close(copy) }
            }
            while copy.withLock({ $0 == nil }) {
                let endpoint = endpoint(path)
                try endpoint.start()
                endpoint.stop()
            }
            #expect(failure(path) == nil)
        }
    }

    @Test func `an impossible path is refused`() async throws {
        try await AdminFixture.withDirectory { directory in
            let long = directory + "/" + String(repeating: "a", count: 120)
            #expect(
                failure(long)?.description
                    == "cannot use \(long) because it has \(long.utf8.count) bytes and the path of a UNIX socket has at most 107; choose a shorter directory"
            )
            let fits = directory + "/" + String(repeating: "a", count: 107 - directory.utf8.count - 1)
            #expect(failure(fits) == nil)
            #expect(failure("admin.sock")?.kind == .path)
            #expect(failure("")?.kind == .path)
            #expect(failure(directory + "/a\0b")?.kind == .path)
            #expect(
                failure(directory + "/none/s")?.description
                    == "cannot listen at \(directory)/none/s: No such file or directory; its directory must exist"
            )
            try Data("text".utf8).write(to: URL(fileURLWithPath: directory + "/file"))
            #expect(failure(directory + "/file")?.description.hasPrefix("cannot listen at") == true)
            #expect(try String(contentsOfFile: directory + "/file", encoding: .utf8) == "text")
        }
    }

    @Test func `of several endpoints at one left-over socket, one listens and the others get an error`() async throws {
        try await AdminFixture.withDirectory { directory in
            for round in 0..<20 {
                let path = directory + "/s\(round)"
                leave(path)
                let all = (0..<4).map { _ in endpoint(path) }
                let kinds = await withTaskGroup(of: AdminError.Kind?.self) { group in
                    for endpoint in all {
                        group.addTask {
                            do throws(AdminError) { try endpoint.start() } catch { return error.kind }
                            return nil
                        }
                    }
                    return await group.reduce(into: []) { $0.append($1) }
                }
                #expect(kinds.count { $0 == nil } == 1)
                #expect(kinds.count { $0 == .occupied } == 3)
                let answer = try AdminClient(path: path).answer(to: AdminRequest(.status))
                #expect(answer.ok)
                for endpoint in all { endpoint.stop() }
            }
        }
    }

    @Test func `the error distinguishes a missing socket from a dead one`() async throws {
        try await AdminFixture.withDirectory { directory in
            leave(directory + "/dead")
            let expected: [(String, AdminError.Kind, String)] = [
                (directory + "/none", .absent, "cannot connect to \(directory)/none because no socket is there"),
                (
                    directory + "/dead", .absent,
                    "cannot connect to \(directory)/dead because no process listens there; the process that made the socket has ended"
                ),
            ]
            for (path, kind, sentence) in expected {
                do throws(AdminError) {
                    _ = try AdminClient(path: path)
                    Issue.record("connected")
                } catch {
                    #expect(error.kind == kind)
                    #expect(error.description == sentence)
                }
            }
        }
    }

    @Test(.needs(geteuid() == 0, "only root can become another user"))
    func `the kernel's credentials refuse another user, even where the file's mode admits that user`() async throws {
        try await AdminFixture.withDirectory { directory in
            let path = directory + "/s", endpoint = endpoint(path)
            try endpoint.start()
            #expect(chmod(directory, 0o755) == 0)
            await #expect(processExitsWith: .success, "the file's mode keeps the user out") { [path = path as String] in
                try Self.becomeNobody()
                do throws(AdminError) {
                    _ = try AdminClient(path: path)
                    Issue.record("connected")
                } catch { #expect(error.kind == .forbidden) }
            }
            #expect(endpoint.counts == .init())
            #expect(chmod(path, 0o666) == 0)
            await #expect(processExitsWith: .success, "the endpoint says no") { [path = path as String] in
                try Self.becomeNobody()
                let client = try AdminClient(path: path), answer = try client.decode(client.nextLine())
                #expect(answer.code == "forbidden" && answer.status == nil && answer.process == nil)
                #expect(answer.error == "cannot answer user 65534 because this service runs as user 0; connect as that user or as root")
                #expect(throws: AdminError.self) { try client.nextLine() }
            }
            #expect(endpoint.counts.refused == 1 && endpoint.counts.connections == 0 && endpoint.counts.requests == 0)
            #expect(try AdminClient(path: path).answer(to: AdminRequest(.status)).ok)
        }
    }

    private static func becomeNobody() throws {
        try #require(setgroups(0, nil) == 0 && setgid(65534) == 0 && setuid(65534) == 0)
    }

    /// Leaves a socket's file without a socket.
    private func leave(_ path: String) {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
        let file = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(file, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
        }
        #expect(result == 0)
        close(file)
    }
}
