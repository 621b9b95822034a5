import Foundation
import TestSupport
import Testing

/// Rules for the sources that the compiler does not enforce.
@Suite struct TidyTests {
    static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()

    /// Returns the package's own sources below a folder; none where the sources are not at hand, as in the virtual
    /// machine.
    static func sources(_ folder: String) -> [(path: String, text: String)] {
        let folder = root.appendingPathComponent(folder)
        // Hidden folders have the sources of other packages.
        let enumerator = FileManager.default.enumerator(
            at: folder, includingPropertiesForKeys: nil, options: .skipsHiddenFiles)
        let files = enumerator?.allObjects as? [URL] ?? []
        return files.filter { $0.pathExtension == "swift" }.compactMap { file in
            (try? String(contentsOf: file, encoding: .utf8)).map { (file.path, $0) }
        }
    }

    static let hasSources = !sources("Sources/Plimsoll").isEmpty

    /// All sources that are not tests.
    private static let all = sources("Sources") + sources("Benchmarks/Process")

    @Test(.needs(hasSources, "the sources are not at hand"))
    func `the core imports only Synchronization and the two shims`() {
        for (path, text) in Self.sources("Sources/Plimsoll") {
            for line in text.split(separator: "\n") where line.contains("import ") && !line.hasPrefix("//") && !line.hasPrefix(" ") {
                let module = line.split(separator: " ").last.map(String.init) ?? ""
                #expect(["Synchronization", "CPlimsollMemory", "CPlimsollProcess"].contains(module), "\(path): \(line)")
            }
        }
    }

    @Test(.needs(hasSources, "the sources are not at hand"))
    func `no source detaches tasks, sleeps, or leaves work for later`() {
        let banned = ["Task." + "detached", "TO" + "DO", "FIX" + "ME", "@_exported", "#if os("]
        for (path, text) in Self.all {
            for word in banned { #expect(!text.contains(word), "\(path) has \(word)") }
        }
    }

    @Test(.needs(hasSources, "the sources are not at hand"))
    func `tests wait with a limit, neither sleep nor spin, and declare their needs`() {
        let banned = [
            " sleep" + "(", ".sleep" + "(", "usleep" + "(", "nanosleep" + "(", "Task." + "yield", "sched_" + "yield(", "yield" + "Thread(",
            ".enabled" + "(if", ".disabled" + "(",
        ]
        for (path, text) in Self.sources("Tests") where path.contains("/Tests/Plimsoll") {
            let words = banned.filter { text.contains($0) }, mayWaitEmpty = text.contains("{}\n")
            guard mayWaitEmpty || !words.isEmpty else { continue }
            for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
                // A loop that sends or writes until there is no more room does work in each turn.
                let isWork = line.contains("while let ") || line.contains("send(") || line.contains("write(")
                let isEmptyLoop = line.hasSuffix("{}") && line.contains("while ") && !isWork
                guard isEmptyLoop || words.contains(where: { line.contains($0) }) else { continue }
                Issue.record(
                    "\(path):\(index + 1): wait with until, blockUntil or untilCancelled and skip with needs, all of TestSupport, not by \(line)")
            }
        }
    }

    /// On a busy machine a test of a few milliseconds may wait minutes for the cooperative pool. Five minutes are more
    /// than `until` waits, so that a wait that fails names its condition.
    @Test(.needs(hasSources, "the sources are not at hand"))
    func `no test has a time limit of less than five minutes`() {
        for (path, text) in Self.sources("Tests") {
            for piece in text.components(separatedBy: ".timeLimit" + "(.minutes(").dropFirst() {
                #expect(Int(piece.prefix { $0.isNumber }) ?? 0 >= 5, "\(path)")
            }
        }
    }

    /// In a generic type a closure is stored in a general form. Each access through `withLock` leaves one wrapper more
    /// around a bare closure, or one in a tuple: memory, and stack at the call, grow without bound.
    @Test(.needs(hasSources, "the sources are not at hand"))
    func `no mutex holds a bare closure, or one in a tuple`() {
        for (path, text) in Self.all {
            for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
                #expect(!(line.contains("Mutex<(") && line.contains("->")), "\(path):\(index + 1)")
            }
        }
    }

    @Test(.needs(hasSources, "the sources are not at hand"))
    func `each unchecked declaration has an argument on the line above`() {
        for (path, text) in Self.all {
            let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
            for (index, line) in lines.enumerated() where line.contains("@unchecked Sendable") || line.contains("nonisolated(unsafe)") {
                #expect(index > 0 && lines[index - 1].contains("//"), "\(path):\(index + 1)")
            }
        }
    }

    @Test(.needs(hasSources, "the sources are not at hand"))
    func `each source file has at most 400 lines`() {
        for (path, text) in Self.all { #expect(text.split(separator: "\n").count <= 400, "\(path)") }
    }
}
