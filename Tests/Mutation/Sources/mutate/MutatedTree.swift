import Foundation
import Schemata

/// A copy of the repository in which every mutant is compiled in, switched off.
struct MutatedTree {
    let origin: URL
    let folder: URL
    private(set) var mutants: [Mutant] = []
    /// File of the excluded lines, in the repository, as each build that finds some takes minutes.
    private let known: URL
    /// The text of lines whose mutants don't compile, by file. A change of the source moves lines.
    private var excluded: [String: [String: Exclusion]] = [:]
    private var lines: [String: [String]] = [:]
    private var written: Set<String> = []
    /// Number of builds that failed in a file.
    private var failures: [String: Int] = [:]

    private static let module = "CPlimsollProcess"
    /// Files that the targets of the manifest need.
    private static let copied = ["Package.swift", "Sources", "Tests", "Benchmarks/Process", "docs"]

    init(of origin: URL, at folder: URL) throws {
        (self.origin, self.folder) = (origin, folder)
        known = origin.appendingPathComponent("Tests/Mutation/excluded.json")
        if let data = try? Data(contentsOf: known) {
            excluded = try JSONDecoder().decode([String: [String: Exclusion]].self, from: data)
        }
    }

    /// Writes the excluded lines, in order, so that a change of the file shows what has changed.
    private func remember() throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        try (encoder.encode(excluded) + Data("\n".utf8)).write(to: known)
    }

    /// Writes the copy and builds the copy's tests. Mutants that don't compile are left out, and the rest is built
    /// again.
    mutating func build() throws {
        for _ in 0..<40 {
            try write()
            let (status, output) = try Command.run(
                "swift", ["build", "--build-tests", "--package-path", tree.path, "-Xswiftc", "-suppress-warnings"],
                environment: ["SWIFT_DETERMINISTIC_HASHING": "1"])
            if status == 0 { return }
            let faults = faults(in: output)
            guard !faults.isEmpty else {
                throw Failure("building the mutants failed without an error in a file that has some:\n\(output.suffix(4000))")
            }
            for (file, lines) in faults {
                for line in lines { excluded[file, default: [:]][line] = excluded[file]?[line] == nil ? .arithmetic : .all }
            }
            try remember()
            print("# \(faults.values.reduce(0) { $0 + $1.count }) lines have mutants that don't compile; building again")
            fflush(nil)
        }
        throw Failure("after 40 builds some mutants still don't compile; the lines left out so far are in \(known.path): run again to go on")
    }

    var tree: URL { folder.appendingPathComponent("tree") }
    var bundle: URL { tree.appendingPathComponent(".build/debug/plimsollPackageTests.xctest") }

    /// Writes only files that change, so that the next build is short.
    private mutating func write() throws {
        (mutants, written) = ([], [])
        let areas = Area.all.map { "Sources/\($0.folder)/" }
        for file in try files() {
            let source = origin.appendingPathComponent(file)
            var data = try Data(contentsOf: source)
            if file.hasSuffix(".swift"), areas.contains(where: file.hasPrefix) {
                let text = String(decoding: data, as: UTF8.self)
                let lines = text.components(separatedBy: "\n").map { $0.trimmingCharacters(in: .whitespaces) }
                self.lines[file] = lines
                let skipped = lines.enumerated().compactMap { index, line in excluded[file]?[line].map { (index + 1, $0) } }
                let mutated = MutatedFile(
                    file: file, source: text, module: Self.module, firstID: mutants.count + 1,
                    excluded: Dictionary(uniqueKeysWithValues: skipped))
                mutants += mutated.mutants
                data = Data(mutated.source.utf8)
            } else if file == "Sources/\(Self.module)/include/\(Self.module).h" {
                data += Data("#include \"mutant.h\"\n".utf8)
            }
            try put(data, file)
        }
        let shim = origin.appendingPathComponent("Tests/Mutation/Switch")
        try put(Data(contentsOf: shim.appendingPathComponent("mutant.h")), "Sources/\(Self.module)/include/mutant.h")
        try put(Data(contentsOf: shim.appendingPathComponent("mutant.c")), "Sources/\(Self.module)/mutant.c")
        for module in Set(Area.all.map { $0.folder.prefix { $0 != "/" } }) {
            try put(Data(MutantSwitch.source(module: Self.module).utf8), "Sources/\(module)/MutantSwitch.swift")
        }
        try removeFiles(except: written)
        guard mutants.count < 65_536 else { throw Failure("\(mutants.count) mutants; the switch has room for 65535") }
    }

    /// Removes files that the repository no longer has.
    private func removeFiles(except kept: Set<String>) throws {
        let files = FileManager.default.enumerator(
            at: tree, includingPropertiesForKeys: [.isRegularFileKey], options: .skipsHiddenFiles)
        for case let file as URL in files?.allObjects ?? [] {
            let path = String(file.standardizedFileURL.path.dropFirst(tree.standardizedFileURL.path.count + 1))
            guard try file.resourceValues(forKeys: [.isRegularFileKey]).isRegularFile ?? false, !kept.contains(path),
                path != "Package.resolved"
            else { continue }
            try FileManager.default.removeItem(at: file)
        }
    }

    private mutating func put(_ data: Data, _ file: String) throws {
        written.insert(file)
        let place = tree.appendingPathComponent(file)
        if (try? Data(contentsOf: place)) == data { return }
        try FileManager.default.createDirectory(at: place.deletingLastPathComponent(), withIntermediateDirectories: true)
        try data.write(to: place)
    }

    /// The files of the repository that the copy needs, as git knows them.
    private func files() throws -> [String] {
        let (status, output) = try Command.run("git", ["-C", origin.path, "ls-files", "-z"] + Self.copied)
        guard status == 0 else { throw Failure("git ls-files in \(origin.path): \(output)") }
        return output.split(separator: "\0").map(String.init)
            .filter { FileManager.default.fileExists(atPath: origin.appendingPathComponent($0).path) }
    }

    /// Returns the text of lines with errors, in files that have mutants.
    private mutating func faults(in output: String) -> [String: Set<String>] {
        let files = Set(mutants.map(\.file))
        var faults: [String: Set<String>] = [:]
        for match in output.matches(of: /(?:^|\n)([^\s:][^:\n]*):(\d+):\d+: error: ([^\n]*)/) {
            let path = String(match.output.1)
            guard let file = files.first(where: { path == $0 || path.hasSuffix("/" + $0) }), let line = Int(match.output.2)
            else { continue }
            // The compiler reports an error inside a statement of several lines at the line of the part, an error of a
            // whole function at the end, and a closure that takes the compiler too long at the beginning. If the
            // omitted mutants have not helped, more mutants are omitted.
            let owners = mutants.filter { $0.file == file }.map(\.line), reach = 5 * failures[file, default: 0]
            let before = owners.filter { $0 <= line }.max().map { $0 - reach...line }
            let after = line...line + 5 + reach, range = match.output.3.contains("type-check") ? after : before ?? after
            for owner in owners where range.contains(owner) {
                if let text = lines[file]?[owner - 1] { faults[file, default: []].insert(text) }
            }
        }
        for file in faults.keys { failures[file, default: 0] += 1 }
        return faults
    }
}
