import PlimsollSupervisor
import Testing

@Suite struct SupervisorArticleTests {
    @Test(arguments: ["docs/Supervisor.md", "docs/Units.md"])
    func `the articles' units files parse, including the policy`(article: String) throws {
        var lines = try #require(Fixture.text(of: article)).split(separator: "\n", omittingEmptySubsequences: false)[...]
        var count = 0
        while let begin = lines.firstIndex(of: "```yaml") {
            let snippet = lines[(begin + 1)...].prefix { $0 != "```" }
            let file = try UnitsFile(snippet.joined(separator: "\n"))
            _ = try SupervisorPolicy(file)
            #expect(!file.units.isEmpty)
            lines = lines[snippet.endIndex...]
            count += 1
        }
        #expect(count > 0)
    }
}
