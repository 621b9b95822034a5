import Testing

@testable import Schemata

@Suite struct MutatedFileTests {
    private func mutants(_ source: String) -> [String] {
        MutatedFile(file: "A.swift", source: source, module: "M", firstID: 1).mutants.map { "\($0.kind) \($0.change)" }
    }

    private func code(_ source: String, excluded: [Int: Exclusion] = [:]) -> String {
        let file = MutatedFile(file: "A.swift", source: source, module: "M", firstID: 1, excluded: excluded)
        return file.source.split(separator: "\n").dropFirst(2).joined(separator: "\n")
    }

    @Test func `a comparison has a boundary and a negation`() {
        #expect(mutants("let a = b < c") == ["boundary b < c -> b <= c", "comparison b < c -> b >= c"])
        #expect(code("let a = b < c") == "let a = mutatedLess(1, 2, b , c)")
        #expect(code("let a = b == nil") == "let a = (plimsoll_mutant(1) ? b != nil : (b == nil))")
    }

    @Test func `nested operators keep their order`() {
        #expect(
            code("let a = b + c == d && e")
                == "let a = (plimsoll_mutant(1) ? b + c == d || e : "
                + "(mutatedEqual(2, (plimsoll_mutant(3) ? b - c : (b + c)) , d) && e))")
    }

    @Test func `statements are left out, also behind try, but assignments of an initializer stay`() {
        #expect(code("func f() throws { try g() }") == "func f() throws { if !plimsoll_mutant(1) { try g() } }")
        #expect(mutants("struct A { var b: Int; init(c: Int) { b = c; d(c) } }") == ["statement d(c) -> nothing"])
        #expect(
            code("func f() { a += b }")
                == "func f() { if plimsoll_mutant(1) { a -= b } else if !plimsoll_mutant(2) { a += b } }")
    }

    @Test func `a statement whose value may be the result stays`() {
        #expect(mutants("func f() -> Int { g() }").isEmpty && mutants("let a = b { c() }").isEmpty)
        #expect(mutants("var a: Int { b() }").isEmpty && mutants("var a: Int { get { b() } }").isEmpty)
        #expect(mutants("func f() { g() }") == ["statement g() -> nothing"])
        // The same holds in branches whose value is the result.
        #expect(mutants("let a = b { switch c { case .d: e(); default: f() } }").isEmpty)
        #expect(mutants("func f() -> Int { if case .a = b { c() } else if case .d = e { g() } else { h() } }").isEmpty)
        #expect(mutants("let a = switch b { case .c: d(); default: e() }").isEmpty)
        #expect(mutants("func f() { switch a { case .b: c(); default: break } }") == ["statement c() -> nothing"])
    }

    @Test func `conditions are negated, without making endless loops`() {
        #expect(code("if a { }") == "if (plimsoll_mutant(1) != (a)) { }")
        #expect(code("guard let a, b.c() else { return }") == "guard let a, (plimsoll_mutant(1) != (b.c())) else { return }")
        #expect(mutants("while a { }").isEmpty && mutants("while true { break }").isEmpty)
    }

    @Test func `constants change, but not in patterns, attributes, raw values, strings and default arguments`() {
        #expect(code("let a = 7") == "let a = (plimsoll_mutant(1) ? 7 + 1 : 7)")
        #expect(code("let a = true") == "let a = (plimsoll_mutant(1) ? false : true)")
        #expect(code("let a = 0.5") == "let a = (plimsoll_mutant(1) ? 0.5 * 2 : 0.5)")
        #expect(mutants("enum A: Int { case b = 1 }").isEmpty)
        #expect(mutants("switch a { case 1: break; default: break }").isEmpty)
        #expect(mutants("func f(a: Int = 1) {}").isEmpty)
        #expect(mutants("let a = \"\\(b + 1)\"").isEmpty)
        #expect(mutants("@available(macOS 15, *) func f() {}").isEmpty)
        #expect(mutants("@inlinable func f() -> Bool { 1 < 2 }").isEmpty)
        #expect(mutants("precondition(a < b)").isEmpty)
    }

    @Test func `min and max replace each other`() {
        #expect(code("let a = min(b, c)") == "let a = (plimsoll_mutant(1) ? max(b, c) : min(b, c))")
    }

    @Test func `excluded lines stay unchanged, and identifiers have no gaps`() {
        let source = "let a = b < c\nlet d = e == f"
        let file = MutatedFile(file: "A.swift", source: source, module: "M", firstID: 5, excluded: [1: .all])
        #expect(file.mutants.map(\.id) == [5] && file.mutants[0].line == 2 && file.mutants[0].text == "let d = e == f")
        #expect(
            file.source == "import M\n#sourceLocation(file: \"A.swift\", line: 1)\n"
                + "let a = b < c\nlet d = mutatedEqual(5, e , f)")
    }

    @Test func `equal changes of equal lines are told apart, and those of one line by the column`() {
        let source = "func f() { a(b == c, b == c) }\n  func f() { a(b == c, b == c) }\nfunc f() { a(b == c, b == c) }"
        let mutants = MutatedFile(file: "A.swift", source: source, module: "M", firstID: 1).mutants.filter { $0.kind == .comparison }
        #expect(mutants.map(\.repetition) == [nil, nil, 1, 1, 2, 2] && Set(mutants.map(\.key)).count == 2)
    }

    @Test func `a line may exclude only the mutants of arithmetic`() {
        #expect(code("let a = b < c * 2", excluded: [1: .arithmetic]) == "let a = mutatedLess(1, 2, b , c * (plimsoll_mutant(3) ? 2 + 1 : 2))")
    }

    @Test func `a file without mutants stays unchanged`() {
        #expect(MutatedFile(file: "A.swift", source: "import B\n", module: "M", firstID: 1).source == "import B\n")
    }
}
