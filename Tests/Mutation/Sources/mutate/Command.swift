import Foundation

struct Failure: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

enum Command {
    /// Runs a program to the end. Returns the exit status and all output.
    ///
    /// - Parameters:
    ///   - limit: time after which the program and its children are killed; the status is 137 then.
    ///   - last: text after which nothing more is of interest; the program is ended, and the status is not 0.
    static func run(
        _ program: String, _ arguments: [String], environment: [String: String] = [:], limit: Duration? = nil,
        until last: String? = nil
    ) throws -> (status: Int32, output: String) {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        let bound = limit.map { ["timeout", "--signal=KILL", "\($0.components.seconds)"] } ?? []
        process.arguments = bound + [program] + arguments
        process.environment = ProcessInfo.processInfo.environment.merging(environment) { $1 }
        // The output goes to a file, as a pipe would stay open in children that outlive the program.
        let log = FileManager.default.temporaryDirectory.appendingPathComponent("mutate-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: log) }
        FileManager.default.createFile(atPath: log.path, contents: nil)
        let output = try FileHandle(forWritingTo: log)
        (process.standardOutput, process.standardError) = (output, output)
        process.standardInput = FileHandle.nullDevice
        let end = DispatchSemaphore(value: 0)
        process.terminationHandler = { _ in end.signal() }
        try process.run()
        while let last, end.wait(timeout: .now() + 0.1) == .timedOut {
            if let data = try? Data(contentsOf: log), data.range(of: Data(last.utf8)) != nil { process.terminate() }
        }
        process.waitUntilExit()
        try output.close()
        return (process.terminationStatus, String(decoding: try Data(contentsOf: log), as: UTF8.self))
    }
}
