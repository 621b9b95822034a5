import ArgumentParser
import Foundation

/// Takes censuses of programs that were not built for censuses.
struct ForeignCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "foreign", abstract: "Take censuses of tools of the toolchain and of two servers.")

    @Option(help: "The command plimsoll.") var plimsoll: String
    @Option(help: "The server that knows nothing of the library.") var webServer: String

    /// The part of a census that is printed.
    private struct Census: Decodable {
        struct Row: Decodable { var name: String, count: Int }
        var rows: [Row]
        var namedBytes: Int, ownedBytes: Int, unnamedBytes: Int
        var coverage: Double {
            Double(namedBytes + ownedBytes) / Double(max(1, namedBytes + ownedBytes + unnamedBytes))
        }
    }

    func run() throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("plimsoll-foreign-\(getpid())")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let source = folder.appendingPathComponent("Large.swift")
        let text = (0..<3000).map {
            "struct S\($0) { var a: Int = \($0); func f(_ x: Int) -> Int { x + a * \($0) } }\n"
        }
        try text.joined().write(to: source, atomically: true, encoding: .utf8)
        let package = folder.appendingPathComponent("Package.swift")
        try "// swift-tools-version: 6.0\nimport PackageDescription\nlet package = Package(name: \"empty\")\n"
            .write(to: package, atomically: true, encoding: .utf8)

        let results = [
            try tool(["swift-format", "format", source.path]),
            try tool(["swift-package", "dump-package", "--package-path", folder.path]),
            try tool(["sourcekit-lsp"]),
            try server("a Hummingbird server", [webServer], path: "/note/someone"),
            try server("the README's service", [CommandLine.arguments[0], "serve"], path: "/thumbnail/one"),
        ]
        figure("heap.foreign", results.count { $0 }, of: results.count)
    }

    /// Runs a tool with and without a census. Returns true if there is a census, and the tool did the same.
    private func tool(_ command: [String]) throws -> Bool {
        let alone = try run(command)
        let counted = try run([plimsoll, "heap", "--json", "--"] + command)
        let census = Self.census(in: counted.errors)
        Self.tell(command[0], census)
        return census != nil && counted.output == alone.output && counted.status == alone.status
    }

    /// Counts the heap of a server while clients ask. Returns true if there is a census, and all clients were answered.
    private func server(_ name: String, _ command: [String], path: String) throws -> Bool {
        let server = try Server(command)
        defer { _ = server.end() }
        guard let client = Client(port: server.port) else { throw Failure("\(name) does not answer") }
        let isWell = { (0..<500).allSatisfy { _ in client.get(path) == 200 } }
        let before = isWell()
        let census = Self.census(in: try run([plimsoll, "heap", "--json", "--pid", "\(server.process)"]).output)
        Self.tell(name, census)
        return census != nil && before && isWell()
    }

    private static func tell(_ name: String, _ census: Census?) {
        guard let census else { return print("# \(name): no census") }
        let share = String(format: "%.1f", census.coverage * 100)
        let first = census.rows.first.map { "first \($0.count) of \($0.name)" } ?? "nothing"
        print("# \(name): \(share) % named or owned; \(first)")
    }

    private static func census(in text: String) -> Census? {
        text.split(separator: "\n").lazy.compactMap { try? JSONDecoder().decode(Census.self, from: Data($0.utf8)) }
            .first
    }

    private func run(_ command: [String]) throws -> (output: String, errors: String, status: Int32) {
        let process = Process(), output = Pipe(), errors = Pipe(), input = Pipe()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = ["--"] + command
        (process.standardOutput, process.standardError, process.standardInput) = (output, errors, input)
        try process.run()
        // A language server ends with its standard input.
        try input.fileHandleForWriting.close()
        // Read after the thread has ended.
        nonisolated(unsafe) var problems = Data()
        let reader = Thread { problems = errors.fileHandleForReading.readDataToEndOfFile() }
        reader.start()
        let text = output.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        while !reader.isFinished { usleep(1000) }
        return (
            String(decoding: text, as: UTF8.self), String(decoding: problems, as: UTF8.self), process.terminationStatus
        )
    }
}
