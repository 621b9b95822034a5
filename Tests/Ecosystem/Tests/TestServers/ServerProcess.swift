public import Foundation
import Synchronization

/// A server program that a test runs: on loopback or a socket in a directory of its own, gone with everything it wrote when the test is over.
public final class ServerProcess: Sendable {
    /// Where programs lie that are not meant for users.
    private static let folders = [
        "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/16/bin",
    ]

    /// The path of a program; `nil` where it isn't installed.
    public static func find(_ program: String) -> String? {
        folders.map { $0 + "/" + program }.first { FileManager.default.isExecutableFile(atPath: $0) }
    }

    // Guarded by `lock`; Foundation's own thread only tells it that the program has ended.
    private nonisolated(unsafe) var process: Process?
    private let lock = Mutex(())
    private let command: [String]

    /// Starts `command`, an absolute path and its arguments. What it prints goes to `log`.
    public init(_ command: [String], log: URL) throws {
        self.command = command
        try start(log: log)
    }

    deinit { kill() }

    /// Starts it again, with the same arguments.
    public func start(log: URL) throws {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: command[0])
        process.arguments = Array(command.dropFirst())
        _ = FileManager.default.createFile(atPath: log.path, contents: nil)
        let output = try FileHandle(forWritingTo: log)
        process.standardOutput = output
        process.standardError = output
        process.standardInput = FileHandle.nullDevice
        try process.run()
        lock.withLock { _ in self.process = process }
    }

    /// Ends the server as an operator would, and waits for the end.
    ///
    /// - Returns: The exit status; `nil` if the server had ended before.
    @discardableResult public func stop() -> Int32? { end(SIGTERM) }

    /// Ends it at once, whatever it is doing.
    public func kill() { _ = end(SIGKILL) }

    /// Freezes it, or lets it go on: a server that has connections and answers nobody.
    public func freeze(_ isFrozen: Bool) { _ = lock.withLock { _ in process.map { Glibc.kill($0.processIdentifier, isFrozen ? SIGSTOP : SIGCONT) } } }

    /// Whether it runs.
    public var isRunning: Bool { lock.withLock { _ in process?.isRunning ?? false } }

    private func end(_ signal: Int32) -> Int32? {
        let process = lock.withLock { _ in
            defer { self.process = nil }
            return self.process
        }
        guard let process, process.isRunning else { return nil }
        _ = Glibc.kill(process.processIdentifier, signal)
        process.waitUntilExit()
        return process.terminationStatus
    }

    /// Runs a program to its end; its exit status.
    public static func run(_ command: [String], log: URL) throws -> Int32 {
        let server = try ServerProcess(command, log: log)
        let process = server.lock.withLock { _ in server.process }
        process?.waitUntilExit()
        return process?.terminationStatus ?? -1
    }
}

/// A directory for one test, removed with its owner.
public final class TemporaryDirectory: Sendable {
    public let url: URL

    public init(_ name: String) throws {
        // Short: a socket's path has 107 bytes.
        url = FileManager.default.temporaryDirectory.appendingPathComponent("plimsoll-\(name)-\(UInt32.random(in: 0 ... .max))")
        try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o755])
    }

    deinit { try? FileManager.default.removeItem(at: url) }

    public func path(_ name: String) -> String { url.appendingPathComponent(name).path }
}

/// Lets others run; for a thread that is held up by a test.
public func yieldThread() { _ = sched_yield() }
