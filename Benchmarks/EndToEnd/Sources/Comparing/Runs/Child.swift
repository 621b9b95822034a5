import Foundation
import Glibc

/// A process started by a comparison, with its outputs in files; ended by its id alone.
final class Child {
    private let process = Process()
    private let directory: URL
    private let name: String

    /// Starts `command`, with outputs in files of `directory`.
    init(_ name: String, _ command: [String], in directory: URL) throws {
        self.name = name
        self.directory = directory
        process.executableURL = URL(fileURLWithPath: command[0])
        process.arguments = Array(command.dropFirst())
        process.standardInput = FileHandle.nullDevice
        process.standardOutput = try Self.file(directory, name + ".out")
        process.standardError = try Self.file(directory, name + ".err")
        try process.run()
    }

    var isRunning: Bool { process.isRunning }
    /// Exit status of a process that has ended.
    var status: Int32 { process.terminationStatus }
    var output: String { text(".out") }
    var errors: String { text(".err") }

    func signal(_ number: Int32) { if process.isRunning { kill(process.processIdentifier, number) } }

    /// Waits until the process has ended.
    ///
    /// - Returns: false if the process has not ended within `seconds`.
    func wait(seconds: Double, meanwhile: () -> Void = {}) -> Bool {
        let end = Date().addingTimeInterval(seconds)
        while process.isRunning {
            if Date() > end { return false }
            meanwhile()
            Thread.sleep(forTimeInterval: 0.02)
        }
        return true
    }

    private func text(_ suffix: String) -> String {
        (try? String(contentsOf: directory.appendingPathComponent(name + suffix), encoding: .utf8)) ?? ""
    }

    private static func file(_ directory: URL, _ name: String) throws -> FileHandle {
        let url = directory.appendingPathComponent(name)
        try Data().write(to: url)
        return try FileHandle(forWritingTo: url)
    }
}
