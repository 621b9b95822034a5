import Foundation
import FoundationXML
import Plimsoll
import Testing

@testable import PlimsollDemos

@Suite struct DrawingTests {
    @Test(arguments: [
        (0.0, 1, "0"), (4.24, 1, "4.2"), (4.26, 1, "4.3"), (20, 1, "20"), (-0.04, 1, "0"), (-1.5, 1, "-1.5"), (0.005, 2, "0.01"), (1.05, 2, "1.05"),
    ])
    func `numbers are formatted for people`(value: Double, decimals: Int, text: String) {
        #expect(Text.number(value, decimals: decimals) == text)
    }

    @Test func `medians of samples are right`() {
        #expect(median([]) == nil)
        #expect(median([3, 1, 2]) == 2)
        #expect(median([4, 1, 2, 3]) == 2.5)
    }

    @Test func `a bar shows usage and the lines`() {
        #expect(Bar.draw(0.5, width: 10, marks: [(0.8, "w"), (0.9, "c")]) == "█████···wc")
        #expect(Bar.draw(2, width: 4) == "████")
        #expect(Bar.draw(.nan, width: 4) == "····")
    }

    @Test func `control characters in text from a kernel or a file cannot steer the terminal`() {
        #expect(printable("a\u{1B}[2Jb\n") == "a\u{FFFD}[2Jb\u{FFFD}")
    }

    // MARK: The chart

    private final class Counter: NSObject, XMLParserDelegate {
        var elements: [String: Int] = [:]
        func parser(
            _ parser: XMLParser, didStartElement name: String, namespaceURI: String?, qualifiedName: String?, attributes: [String: String]
        ) { elements[name, default: 0] += 1 }
    }

    @Test(arguments: [false, true])
    func `the chart is well-formed and shows the run's events`(isEmpty: Bool) {
        let (without, with) =
            isEmpty
            ? (DemoRecord(isProtected: false), DemoRecord(isProtected: true)) : DemoSimulation(limit: .mebibytes(256), seconds: 20).run()
        let svg = DemoChart(without: without, with: with, limit: .mebibytes(256), seconds: 20).svg
        let parser = XMLParser(data: Data(svg.utf8)), counter = Counter()
        parser.delegate = counter
        #expect(parser.parse(), "\(String(describing: parser.parserError))")
        #expect(counter.elements["svg"] == 1)
        #expect(counter.elements["path", default: 0] == (isEmpty ? 0 : 3))
        #expect(isEmpty || svg.contains("killed at"))
        ChartTexts(svg).expectReadable()
        #expect(svg.contains("prefers-color-scheme: dark"))
    }

    @Test func `outside text is escaped in the chart`() {
        var record = DemoRecord(isProtected: false)
        record.fate = .other("</text><script>\"&'")
        let svg = DemoChart(without: record, with: DemoRecord(isProtected: true), limit: .mebibytes(64), seconds: 4).svg
        #expect(!svg.contains("<script>"))
        #expect(XMLParser(data: Data(svg.utf8)).parse())
    }

    @Test(arguments: [(0.3, 0.5), (1, 1), (1.2, 2), (3, 5), (51.2, 100), (0, 1), (.infinity, 1)])
    func `axes step by round numbers`(value: Double, step: Double) {
        #expect(abs(TimeAxis.roundStep(value) - step) < 1e-9)
    }
}
