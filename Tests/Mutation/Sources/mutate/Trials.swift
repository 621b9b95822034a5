import Foundation
import Schemata
import Synchronization

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

    /// A suite of tests, and a run of the suite without a mutant.
    private struct Suite {
        var name: String
        var reached: Set<Int>
        var seconds: Int64
    }

    let tree: MutatedTree
    /// The suites of each target.
    private var suites: [String: [Suite]] = [:]

    /// Runs the suites of all targets once, `jobs` targets at a time. Another target's tests may cover a folder's
    /// code, too.
    init(_ tree: MutatedTree, jobs: Int) throws {
        self.tree = tree
        let measured = Mutex<[String: [Suite]]>([:]), trials = self
        try Mutate.each(Set(Area.all.map(\.tests)).sorted().reversed(), atOnce: jobs) { target in
            let suites = try trials.suites(of: target)
            measured.withLock { $0[target] = suites }
        }
        suites = measured.withLock { $0 }
    }

    private static func area(of mutant: Mutant) throws -> Area {
        guard let area = Area.all.first(where: { mutant.file.hasPrefix("Sources/\($0.folder)/") }) else {
            throw Failure("\(mutant.file) is in no folder that has mutants")
        }
        return area
    }

    /// Runs the suites that reach the mutant: first those of its folder, then the others of the target, then those of
    /// each other target, if these are quick or the only ones.
    func verdict(on mutant: Mutant) throws -> Verdict {
        let area = try Self.area(of: mutant), near = try names(near: area), own = reaching(mutant, in: area.tests)
        var groups = [
            (area.tests, own.filter { near.contains($0.name) }), (area.tests, own.filter { !near.contains($0.name) }),
        ]
        groups += suites.keys.filter { $0 != area.tests }.map { ($0, reaching(mutant, in: $0)) }
            .filter { own.isEmpty || Self.seconds($0.1) <= 20 }.sorted { Self.seconds($0.1) < Self.seconds($1.1) }
        groups.removeAll { $0.1.isEmpty }
        for (target, group) in groups {
            let filter = Self.filter(target, group.map(\.name))
            let limit = Duration.seconds(30 + Self.seconds(group) * 3 / 2)
            let status = try run(filter, mutant: mutant.id, limit: limit).status
            if status == 137 { return .hung }
            if status != 0 { return .killed }
        }
        return groups.isEmpty ? .unreached : .survived
    }

    private static func seconds(_ suites: [Suite]) -> Int64 { suites.reduce(0) { $0 + $1.seconds } }

    private func reaching(_ mutant: Mutant, in target: String) -> [Suite] {
        suites[target, default: []].filter { $0.reached.contains(mutant.id) }
    }

    private static func filter(_ target: String, _ suites: [String]) -> String {
        "^\(target)\\.(\(suites.joined(separator: "|")))/"
    }

    /// Returns the suites of a target. Each suite is run once to see the reached mutants.
    private func suites(of target: String) throws -> [Suite] {
        let (status, list) = try Command.run(tree.bundle.path, ["--testing-library", "swift-testing", "--list-tests"])
        guard status == 0 else { throw Failure("\(tree.bundle.path) can't list its tests:\n\(list.suffix(4000))") }
        let names = list.split(separator: "\n").filter { $0.hasPrefix(target + ".") }
            .map { String($0.dropFirst(target.count + 1).prefix { $0 != "/" }) }
        let measured = try Set(names).subtracting(Area.readers).sorted().map { try suite($0, of: target) }
        print(
            "# \(target): \(measured.count) suites, \(measured.reduce(0) { $0 + $1.seconds }) s,"
                + " \(measured.reduce(into: Set()) { $0.formUnion($1.reached) }.count) mutants reached")
        fflush(nil)
        return measured
    }

    private func suite(_ name: String, of target: String) throws -> Suite {
        let map = FileManager.default.temporaryDirectory.appendingPathComponent("reached-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: map) }
        try Data(count: 65_536).write(to: map)
        let start = ContinuousClock.now
        let (status, output) = try run(Self.filter(target, [name]), mutant: 0, limit: .seconds(900), reached: map.path)
        guard status == 0 else {
            throw Failure("\(target).\(name) fails without a mutant, so it can't tell one:\n\(output.suffix(4000))")
        }
        let reached = try Data(contentsOf: map).enumerated().filter { $0.element != 0 }.map(\.offset)
        return Suite(name: name, reached: Set(reached), seconds: (ContinuousClock.now - start).components.seconds + 1)
    }

    private func run(
        _ filter: String, mutant: Int, limit: Duration, reached: String? = nil
    ) throws -> (status: Int32, output: String) {
        // Swift's reporter of crashes may outlive the program, and `Process` then waits for the reporter as well.
        var environment = ["MUTANT": "\(mutant)", "NO_COLOR": "1", "SWIFT_BACKTRACE": "enable=no"]
        environment["MUTANTS_REACHED"] = reached
        return try Command.run(
            tree.bundle.path, ["--testing-library", "swift-testing", "--filter", filter], environment: environment,
            limit: limit, until: mutant == 0 ? nil : "recorded an issue")
    }

    /// Returns the suites that the files of the area's folder of tests declare.
    private func names(near area: Area) throws -> Set<String> {
        let folder = tree.origin.appendingPathComponent("Tests/\(area.tests)/\(area.room)")
        let files = FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil)?.allObjects as? [URL] ?? []
        return try files.filter { $0.pathExtension == "swift" }.reduce(into: []) { names, file in
            let text = try String(contentsOf: file, encoding: .utf8)
            names.formUnion(text.matches(of: /(?:struct|class|actor|enum|extension) (\w+)/).map { String($0.output.1) })
        }
    }
}
