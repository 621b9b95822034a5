import Foundation
import TestSupport
import Testing

/// Links between the documents, and the length of README.md.
@Suite(.needs(TidyTests.hasSources, "the sources are not at hand")) struct DocumentationTests {
    private static let root = TidyTests.root.standardizedFileURL

    /// The documents of the repository. `docs/surface` has none.
    private static func documents() throws -> [URL] {
        let places = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Benchmarks/README.md", "docs", "Sources/Plimsoll/Plimsoll.docc"]
        return try places.flatMap { place in
            let url = root.appendingPathComponent(place)
            guard url.pathExtension != "md" else { return [url] }
            let files = try #require(FileManager.default.enumerator(at: url, includingPropertiesForKeys: nil)?.allObjects as? [URL])
            return files.filter { $0.pathExtension == "md" && !$0.path.contains("/.build/") }
        }
    }

    @Test func `relative links of the documents name files and headings that exist`() throws {
        var count = 0
        for document in try Self.documents() {
            let links = Markdown(try String(contentsOf: document, encoding: .utf8)).links
            count += links.count
            for link in links {
                let place = "\(document.path.dropFirst(Self.root.path.count + 1)): \(link)"
                let parts = link.split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
                let target = parts[0].isEmpty ? document : document.deletingLastPathComponent().appendingPathComponent(parts[0]).standardized
                guard FileManager.default.fileExists(atPath: target.path) else {
                    Issue.record("\(place): no such file")
                    continue
                }
                guard parts.count > 1, target.pathExtension == "md" else { continue }
                let anchors = Markdown(try String(contentsOf: target, encoding: .utf8)).anchors
                #expect(anchors.contains(parts[1]), "\(place): the file has no such heading")
            }
        }
        #expect(count > 80, "the links were not found")
    }

    @Test func `articles name only articles that exist, and the landing page names all of them`() throws {
        let articles = try Self.documents().filter { $0.path.contains(".docc/") }
        let names = Set(articles.map { $0.deletingPathExtension().lastPathComponent })
        for article in articles {
            let own = article.deletingPathExtension().lastPathComponent
            let named = Set(try String(contentsOf: article, encoding: .utf8).matches(of: #/<doc:(\w+)>/#).map { String($0.output.1) })
            #expect(named.isSubset(of: names), "\(own) names \(named.subtracting(names))")
            if own == "Plimsoll" { #expect(names.subtracting(named) == ["Plimsoll"]) }
        }
    }

    @Test func `README.md has at most 120 lines of at most 120 columns`() throws {
        let text = try String(contentsOf: Self.root.appendingPathComponent("README.md"), encoding: .utf8)
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false).dropLast()
        #expect((1...120).contains(lines.count), "\(lines.count) lines")
        for (index, line) in lines.enumerated() { #expect(line.count <= 120, "README.md:\(index + 1) has \(line.count) columns") }
    }

    @Test func `links and anchors are read from Markdown, but not from code`() {
        let text = """
            # `make` and the *rest*: A_b, c
            See [one](a.md#b-c) and [two](b%20c.md), not [three](https://example.org) or `[four](d.md)`.
            ![a picture](e.svg)
            ```
            # no heading [five](f.md)
            ```
            ## Again
            ## Again
            """
        #expect(Markdown(text).links == ["a.md#b-c", "b c.md", "e.svg"])
        #expect(Markdown(text).anchors == ["make-and-the-rest-a_b-c", "again", "again-1"])
    }
}

/// The links and headings of a Markdown text.
private struct Markdown {
    /// Targets of links and pictures that name no scheme.
    private(set) var links: [String] = []
    /// Anchors of the headings, as GitHub makes them.
    private(set) var anchors: Set<String> = []

    init(_ text: String) {
        var isCode = false, counts: [String: Int] = [:]
        for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
            if line.drop(while: { $0 == " " }).hasPrefix("```") { isCode.toggle() }
            guard !isCode else { continue }
            if line.hasPrefix("#") {
                let anchor = Self.anchor(line.drop { $0 == "#" }), count = counts[anchor, default: 0]
                counts[anchor] = count + 1
                anchors.insert(count == 0 ? anchor : "\(anchor)-\(count)")
            }
            // Of the parts between backticks, those with an odd index are code.
            let prose = line.split(separator: "`", omittingEmptySubsequences: false).enumerated().map { $0 % 2 == 0 ? String($1) : "" }.joined()
            for link in prose.matches(of: #/\]\(([^)\s]+)/#).map({ String($0.output.1) }) where !link.contains("://") && !link.hasPrefix("mailto:") {
                links.append(link.removingPercentEncoding ?? link)
            }
        }
    }

    private static func anchor(_ heading: Substring) -> String {
        let text = heading.trimmingCharacters(in: .whitespaces).lowercased()
        return String(text.compactMap { $0 == " " ? "-" : $0.isLetter || $0.isNumber || $0 == "-" || $0 == "_" ? $0 : nil })
    }
}
