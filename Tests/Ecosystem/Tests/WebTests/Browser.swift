import Foundation

/// Headless Chromium, where it is installed.
enum Browser {
    static let path = ["chromium", "chromium-browser", "google-chrome"].lazy
        .flatMap { name in ["/usr/bin/", "/usr/local/bin/"].map { $0 + name } }.first { FileManager.default.isExecutableFile(atPath: $0) }

    /// The document after some seconds of the page's own time, and the lines on the console.
    struct Result {
        var document: String
        var console: [String]
    }

    /// Loads `url` in a separate browser. The browser's clock runs ahead while the browser is idle, so that the load
    /// takes no real seconds.
    static func load(_ url: String) async throws -> Result {
        let directory = FileManager.default.temporaryDirectory.appendingPathComponent("plimsoll-browser-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        let output = directory.appendingPathComponent("document"), errors = directory.appendingPathComponent("errors")
        for file in [output, errors] { _ = FileManager.default.createFile(atPath: file.path, contents: nil) }
        let process = Process()
        // Ends a browser that hangs.
        process.executableURL = URL(fileURLWithPath: "/usr/bin/timeout")
        process.arguments = [
            "--kill-after=5", "90", path ?? "", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-extensions", "--no-first-run",
            "--user-data-dir=\(directory.path)/profile", "--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom", url,
        ]
        process.standardOutput = try FileHandle(forWritingTo: output)
        process.standardError = try FileHandle(forWritingTo: errors)
        try await withCheckedThrowingContinuation { (done: CheckedContinuation<Void, any Error>) in
            process.terminationHandler = { _ in done.resume() }
            do { try process.run() } catch { done.resume(throwing: error) }
        }
        let console = try String(contentsOf: errors, encoding: .utf8).split(separator: "\n").filter { $0.contains(":CONSOLE") }.map(String.init)
        return Result(document: try String(contentsOf: output, encoding: .utf8), console: console)
    }
}
