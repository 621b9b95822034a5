import Foundation
import Schemata

/// Runs the tests with one mutant after another.
struct Trials {
    enum Verdict: String, Codable {
        case killed
        /// The tests did not end in time.
        case hung
        /// All tests passed.
        case survived
        /// No test runs the code.
        case unreached
    }

    /// A run of one set of tests without a mutant.
    private struct Baseline {
        var reached: Set<Int>
        var seconds: Int64
    }

    let tree: MutatedTree
    private var baselines: [String: Baseline] = [:]

    init(_ tree: MutatedTree) { self.tree = tree }

    /// Runs the tests of the mutant's folder, and all tests of the target if those pass.
    mutating func verdict(on mutant: Mutant) throws -> Verdict {
        guard let area = Area.all.first(where: { mutant.file.hasPrefix("Sources/\($0.folder)/") }) else {
            throw Failure("\(mutant.file) is in no folder that has mutants")
        }
        var wasReached = false
        for filter in [try suites(of: area), "^\(area.tests)\\."].compactMap({ $0 }) {
            let baseline = try baseline(filter)
            guard baseline.reached.contains(mutant.id) else { continue }
            wasReached = true
            let status = try run(filter, mutant: mutant.id, limit: .seconds(30 + 4 * baseline.seconds)).status
            if status == 137 { return .hung }
            if status != 0 { return .killed }
        }
        return wasReached ? .survived : .unreached
    }

    private mutating func baseline(_ filter: String) throws -> Baseline {
        if let known = baselines[filter] { return known }
        let map = FileManager.default.temporaryDirectory.appendingPathComponent("reached-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: map) }
        try Data(count: 65_536).write(to: map)
        let start = ContinuousClock.now
        let (status, output) = try run(filter, mutant: 0, limit: .seconds(900), reached: map.path)
        guard status == 0 else {
            throw Failure("the tests \(filter) fail without a mutant, so they can't tell one:\n\(output.suffix(4000))")
        }
        let reached = try Data(contentsOf: map).enumerated().filter { $0.element != 0 }.map(\.offset)
        let baseline = Baseline(reached: Set(reached), seconds: (ContinuousClock.now - start).components.seconds + 1)
        print("# \(filter.prefix(60)): \(baseline.seconds) s, \(reached.count) mutants reached")
        baselines[filter] = baseline
        return baseline
    }

    private func run(_ filter: String, mutant: Int, limit: Duration, reached: String? = nil) throws -> (status: Int32, output: String) {
        var environment = ["MUTANT": "\(mutant)", "NO_COLOR": "1"]
        environment["MUTANTS_REACHED"] = reached
        let skipped = Area.readers.flatMap { ["--skip", "\\.\($0)\\b"] }
        return try Command.run(
            tree.bundle.path, ["--testing-library", "swift-testing", "--filter", filter] + skipped, environment: environment,
            limit: limit, until: mutant == 0 ? nil : "recorded an issue")
    }

    /// A pattern for the suites that the folder of tests declares; `nil` if there is none.
    private func suites(of area: Area) throws -> String? {
        let folder = tree.origin.appendingPathComponent("Tests/\(area.tests)/\(area.room)")
        let files = FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil)?.allObjects as? [URL] ?? []
        var names: [String] = []
        for file in files where file.pathExtension == "swift" {
            let text = try String(contentsOf: file, encoding: .utf8)
            names += text.matches(of: /@Suite[^\n]*?(?:struct|class|actor) (\w+)/).map { String($0.output.1) }
        }
        return names.isEmpty ? nil : "^\(area.tests)\\.(\(names.sorted().joined(separator: "|")))\\b"
    }
}
