import Foundation
import Plimsoll
import TestSupport
import Testing

@testable import PlimsollService

/// The examples of `docs/operations/admin.md` against a running endpoint: each request is sent, and the shown part of
/// the answer is compared.
@Suite struct AdminArticleTests {
    static let article: String? = {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
        return try? String(contentsOf: root.appendingPathComponent("docs/operations/admin.md"), encoding: .utf8)
    }()

    @Test(.needs(article != nil, "the article is not at hand"))
    func `every example of the article gets the shown answer`() async throws {
        let lines = (Self.article ?? "").split(separator: "\n").map { $0.drop { $0 == " " } }
        try await AdminFixture.run { fixture in
            let readOnly = AdminEndpoint(manager: fixture.manager, path: fixture.directory + "/read-only")
            try readOnly.start()
            var pairs = 0, isReadOnly = false
            for (index, line) in lines.enumerated() {
                if line.hasPrefix("and by an endpoint without") { isReadOnly = true }
                guard line.hasPrefix("> "), lines[index + 1].hasPrefix("< ") else { continue }
                let client = try AdminClient(path: isReadOnly ? fixture.directory + "/read-only" : fixture.path)
                try client.send(Array((line.dropFirst(2) + "\n").utf8))
                let answer = try JSONSerialization.jsonObject(with: Data(client.nextLine().utf8))
                let shown = try JSONSerialization.jsonObject(with: Data(lines[index + 1].dropFirst(2).utf8))
                let differences = Self.differences(shown, answer, "\(line.dropFirst(2)): ")
                #expect(differences.isEmpty, "\(differences.joined(separator: "\n"))")
                pairs += 1
            }
            #expect(pairs == 14)
        }
    }

    /// Keys whose values differ from service to service, and from run to run.
    private static let changing: Set<String> = ["process", "program", "tookSeconds", "state"]

    /// Returns the places where the answer lacks the shown part. The shown elements of an array must be the first ones.
    private static func differences(_ shown: Any, _ answer: Any?, _ place: String) -> [String] {
        switch (shown, answer) {
        case (let shown as [String: Any], let answer as [String: Any]):
            return shown.flatMap { key, value in
                changing.contains(key)
                    ? (answer[key] == nil ? [place + key + " is missing"] : []) : differences(value, answer[key], "\(place).\(key)")
            }
        case (let shown as [Any], let answer as [Any]):
            if shown.count > answer.count || (shown.isEmpty && !answer.isEmpty) { return ["\(place): \(answer)"] }
            return zip(shown, answer).enumerated().flatMap { differences($1.0, $1.1, "\(place)[\($0)]") }
        case (let shown as NSObject, let answer as NSObject): return shown == answer ? [] : ["\(place): shown \(shown), answered \(answer)"]
        default: return ["\(place): shown \(shown), answered \(answer ?? "nothing")"]
        }
    }
}
