import Foundation
import TestSupport
import Testing

/// The public surface of each product. docs/surface has a file for each product with all public declarations, so that a
/// change of the surface shows in review.
///
/// `PLIMSOLL_WRITE_SURFACE=1 swift test --filter PublicSurfaceTests` writes the files.
@Suite(.needs(TidyTests.hasSources, "the sources are not at hand")) struct PublicSurfaceTests {
    private static let folder = TidyTests.root.appendingPathComponent("docs/surface")
    private static let products = [
        "Plimsoll", "PlimsollLifecycle", "PlimsollLinux", "PlimsollFoundation", "PlimsollFoundationNetworking", "PlimsollJemalloc", "PlimsollHeap",
        "PlimsollService",
        "PlimsollSupervisor",
        "PlimsollTesting", "PlimsollHummingbird", "PlimsollGRPC", "PlimsollNIO", "PlimsollGRDB", "PlimsollPostgreSQL", "PlimsollSpill",
    ]

    @Test(arguments: products) func `the surface of a product matches the file in docs/surface`(product: String) throws {
        let surface = PublicSurface(
            TidyTests.sources("Sources/\(product)").filter { !$0.path.contains("/Inert/") && !$0.path.hasSuffix("/WithoutTrait.swift") }
                .sorted { $0.path < $1.path }.map(\.text))
        #expect(!surface.lines.isEmpty || product == "PlimsollJemalloc", "\(product)")
        let file = Self.folder.appendingPathComponent("\(product).txt"), text = surface.text
        if ProcessInfo.processInfo.environment["PLIMSOLL_WRITE_SURFACE"] == "1" {
            try FileManager.default.createDirectory(at: Self.folder, withIntermediateDirectories: true)
            try text.write(to: file, atomically: true, encoding: .utf8)
        }
        let known = Set(try String(contentsOf: file, encoding: .utf8).split(separator: "\n")), present = Set(text.split(separator: "\n"))
        let gone = known.subtracting(present).sorted(), new = present.subtracting(known).sorted()
        #expect(
            gone.isEmpty && new.isEmpty,
            "\(product) gained \(new) and lost \(gone); if that is meant, PLIMSOLL_WRITE_SURFACE=1 writes docs/surface/\(product).txt")
    }

    @Test func `the inert branch of PlimsollLinux declares the types of Linux, and nothing more`() {
        func types(_ isInert: Bool) -> [String] {
            let texts = TidyTests.sources("Sources/PlimsollLinux").filter { $0.path.contains("/Inert/") == isInert }.map(\.text)
            return PublicSurface(texts).lines.filter { $0.contains(": class ") || $0.contains(": struct ") || $0.contains(": enum ") }.sorted()
        }
        #expect(types(true) == types(false) && types(true).count == 6)
    }

    @Test func `public declarations are found, with their place, and no others`() {
        let source = """
            public struct House: Sendable {
                /// public in a comment
                public var rooms: Int { 3 }
                let hidden = "public func no()"
                public init(
                    rooms: Int, floors: Int = 2
                ) {
                    self.rooms = rooms
                }
                public enum Kind { case small, large }
                package func plumbing() {}
                struct Inner { public var unreachable = 1 }
            }
            extension House {
                @discardableResult
                public func open() -> Bool { true }
            }
            public protocol Door {
                var isOpen: Bool { get }
            }
            struct Cellar {
                public var wine = 1
            }
            extension Cellar { public func drink() {} }
            """
        #expect(
            PublicSurface([source]).lines
                == [
                    "Door: protocol Door", "Door: var isOpen: Bool { get }", "House.Kind: enum Kind { case small, large }",
                    "House: func open() -> Bool",
                    "House: init(rooms: Int, floors: Int = 2)", "House: struct House: Sendable", "House: var rooms: Int",
                ].sorted())
        #expect(PublicSurface([source]).types == ["Door", "House", "House.Kind"])
    }
}

/// The public declarations of a module's sources, as `TYPE: DECLARATION`.
struct PublicSurface {
    private(set) var lines: [String] = []
    /// The names of the public types. A nested type has the names of the types around.
    private(set) var types: [String] = []

    var text: String { "# \(types.count) public types\n" + lines.joined(separator: "\n") + "\n" }

    private struct Scope {
        var indent: Int
        var name: String
        var isPublic: Bool
        /// True if members are public without a keyword, as in protocols and for cases of enumerations.
        var opensMembers: Bool
        var opensCases: Bool
    }

    init(_ sources: [String]) {
        // An extension may precede its type, so that a first pass collects the public types.
        var declared: [String: Bool] = [:]
        for source in sources { _ = Self.read(source, &declared, isFirst: true) }
        for source in sources {
            let found = Self.read(source, &declared, isFirst: false)
            lines += found.lines
            types += found.types
        }
        lines.sort()
        types.sort()
    }

    /// - Parameters:
    ///   - declared: the module's own types, and which of them are public.
    ///   - isFirst: true while the types are collected.
    private static func read(_ source: String, _ declared: inout [String: Bool], isFirst: Bool) -> (lines: [String], types: [String]) {
        var lines: [String] = [], types: [String] = [], scopes: [Scope] = []
        let rows = source.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
        var row = 0
        while row < rows.count {
            let line = rows[row], indent = line.prefix { $0 == " " }.count
            var text = line.trimmingCharacters(in: .whitespaces)
            row += 1
            guard !text.isEmpty, !text.hasPrefix("//"), !text.hasPrefix("#"), !text.hasPrefix("}") else {
                if text == "}" { scopes.removeAll { $0.indent >= indent } }
                continue
            }
            while scopes.last.map({ indent <= $0.indent }) == true { scopes.removeLast() }
            guard scopes.isEmpty || indent == scopes[scopes.count - 1].indent + 4 else { continue }
            // A declaration may span several lines, up to the end of its parameters.
            while text.count(where: { $0 == "(" }) > text.count(where: { $0 == ")" }), row < rows.count {
                text += " " + rows[row].trimmingCharacters(in: .whitespaces)
                row += 1
            }
            text = text.replacingOccurrences(of: "( ", with: "(").replacingOccurrences(of: " )", with: ")")
            let words = text.split(separator: " ").map(String.init)
            let isMarked = words.contains("public") || words.contains("open")
            let around = scopes.last
            let isReachable = scopes.allSatisfy(\.isPublic)
            let isImplied = around.map { $0.opensMembers && !text.hasPrefix("@") || $0.opensCases && text.hasPrefix("case ") } ?? false
            let place = scopes.map(\.name).joined(separator: ".")
            if let kind = words.firstIndex(where: { ["struct", "class", "enum", "protocol", "actor", "extension"].contains($0) }), kind < 4,
                words[..<kind].allSatisfy({
                    $0.hasPrefix("@") || ["public", "final", "package", "private", "fileprivate", "indirect", "open"].contains($0)
                }),
                kind + 1 < words.count
            {
                let name = String(words[kind + 1].prefix { $0.isLetter || $0.isNumber || $0 == "_" || $0 == "." })
                let isExtension = words[kind] == "extension", full = place.isEmpty ? name : place + "." + name
                // An extension of another module's type is as public as its members.
                let isPublic = isExtension ? declared[name] ?? true : isReachable && words[..<kind].contains { $0 == "public" || $0 == "open" }
                if !isExtension, isFirst { declared[full] = isPublic }
                if isPublic, !isExtension {
                    types.append(full)
                    // An enumeration on one line has its cases on that line.
                    lines.append("\(full): \(declaration(text, keepsBody: words[kind] == "enum" && text.hasSuffix("}")))")
                }
                if text.hasSuffix("{") {
                    scopes.append(
                        Scope(
                            indent: indent, name: name, isPublic: isPublic, opensMembers: words[kind] == "protocol" && isPublic,
                            opensCases: words[kind] == "enum" && isPublic))
                }
                continue
            }
            if isReachable, isMarked || isImplied, !text.contains("import ") {
                lines.append("\(place): \(declaration(text, keepsBody: around?.opensMembers == true))")
            }
        }
        return (lines, types)
    }

    private static func declaration(_ text: String, keepsBody: Bool = false) -> String {
        var words = text.split(separator: " ").map(String.init)
        words.removeAll { ["public", "final", "open"].contains($0) || $0.hasPrefix("@") && !$0.contains("(") }
        var text = words.joined(separator: " ")
        if !keepsBody, let open = text.range(of: " {") { text = String(text[..<open.lowerBound]) }
        if !keepsBody, let value = text.range(of: " = "), text.hasPrefix("let ") || text.hasPrefix("var ") || text.hasPrefix("static let ") {
            text = String(text[..<value.lowerBound])
        }
        return text
    }
}
