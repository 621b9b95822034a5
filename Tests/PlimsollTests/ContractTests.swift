import Foundation
import TestSupport
import Testing

/// The table in docs/Contracts.md, which lists each promise and the tests that hold the promise. `make contracts`
/// rewrites the table.
@Suite(.needs(TidyTests.hasSources, "the sources are not at hand")) struct ContractTests {
    /// Promises and mistakes that no test names yet. The set is to become empty.
    static let withoutTest: Set = ["C13"]

    private static let file = TidyTests.root.appendingPathComponent("docs/Contracts.md")
    private static let tests = TidyTests.sources("Tests").flatMap { NamedTest.all(in: $0.text) }

    private static func table() throws -> ContractTable { ContractTable(try String(contentsOf: file, encoding: .utf8)) }

    @Test func `the table agrees with the names of the tests`() throws {
        let table = try Self.table()
        let written = table.written(for: Self.tests)
        if ProcessInfo.processInfo.environment["PLIMSOLL_WRITE_CONTRACTS"] != nil {
            try Data(written.joined(separator: "\n").utf8).write(to: Self.file, options: .atomic)
            return
        }
        for (number, (have, want)) in zip(table.lines, written).enumerated() where have != want {
            Issue.record("docs/Contracts.md:\(number + 1) has\n  \(have)\nwhere the tests' names make it\n  \(want)\n`make contracts` rewrites it")
        }
    }

    @Test func `each promise and each mistake has one row, in order`() throws {
        let ids = try Self.table().ids
        #expect(ids == ContractTable.ids)
    }

    @Test func `tests name existing ids, at the beginning, and no two tests of a suite the same`() {
        let known = Set(ContractTable.ids)
        var seen: Set<NamedTest> = []
        for test in Self.tests {
            for id in test.ids + test.misplacedIDs { #expect(known.contains(id), "\(test): there is no \(id)") }
            #expect(test.misplacedIDs.isEmpty, "\(test): ids count at the beginning of a name only")
            if !test.ids.isEmpty { #expect(seen.insert(test).inserted, "\(test) is there twice") }
        }
        #expect(seen.count > 100, "the tests were not found")
    }

    @Test func `the list of untested promises is right`() {
        let holding = ContractTable.holding(Self.tests)
        let missing = ContractTable.required.filter { holding[$0] == nil }
        let unexpected = missing.subtracting(Self.withoutTest).sorted(), held = Self.withoutTest.subtracting(missing).sorted()
        #expect(unexpected.isEmpty, "these rows have no test whose name begins with them")
        #expect(held.isEmpty, "these have tests by now: take them out of `withoutTest`")
    }

    @Test func `names are found in sources, and rows in tables`() {
        let tick = "`"
        let source = """
            // struct Remark { func \(tick)C9 a remark\(tick)() }
            @Suite(.serialized) final class SomeTests: Sendable {
                @Test func \(tick)C1 T22 K3 what is held\(tick)(line: String) {
                // func \(tick)C2 this is none\(tick)()
                func helper() {}
                struct Inner {}
                @Test func \(tick)that C3, and a|b\(tick)() {
            extension MoreTests {
                @Test(arguments: [1]) func \(tick)C4\(tick)(_: Int) {
            """
        let tests = NamedTest.all(in: source)
        #expect(tests.map(\.description) == ["SomeTests.C1 T22 K3 what is held", "SomeTests.that C3, and a|b", "MoreTests.C4"])
        #expect(tests.map(\.ids) == [["C1", "T22", "K3"], [], ["C4"]] && tests.map(\.misplacedIDs) == [[], ["C3"], []])

        let table = ContractTable("text | C1 | x |\n| C1 | a \\| b | old |\n| C13 | | |\n| C47 |  | x |\n| C99 to | |\n| T1 to T40 | 7 |\n|---|")
        let written = table.written(for: tests + [NamedTest(suite: "A", name: "C1 x|y")])
        #expect(
            Array(written[..<4]) == [
                "text | C1 | x |", "| C1 | a \\| b | A.C1 x\\|y<br>SomeTests.C1 T22 K3 what is held |", "| C13 |  | with the supervisor |",
                "| C47 |  | none |",
            ])
        #expect(Array(written[4...]) == ["| C99 to | |", "| T1 to T40 | 40 | 1 | 0 | 0 | 39 |", "|---|"])
        #expect(table.ids == ["C1", "C13", "C47"])
    }
}
