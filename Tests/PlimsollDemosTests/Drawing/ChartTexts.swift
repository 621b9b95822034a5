import Foundation
import FoundationXML
import Testing

@testable import PlimsollDemos

/// The texts of a drawing, with their places.
final class ChartTexts: NSObject, XMLParserDelegate {
    struct Box {
        var text: String
        var x: Double, y: Double, width: Double
        func overlaps(_ other: Box) -> Bool {
            x < other.x + other.width && other.x < x + width && abs(y - other.y) < 11
        }
    }

    private(set) var boxes: [Box] = []
    private(set) var size = (width: 0.0, height: 0.0)
    private var attributes: [String: String]?
    private var text = ""

    /// Reads a drawing, which must be well-formed.
    init(_ svg: String) {
        super.init()
        let parser = XMLParser(data: Data(svg.utf8))
        parser.delegate = self
        #expect(parser.parse(), "\(String(describing: parser.parserError))")
    }

    /// Expects that no text covers another or leaves the picture.
    func expectReadable() {
        for (index, box) in boxes.enumerated() {
            #expect(box.x >= 0 && box.x + box.width <= size.width && box.y >= 11 && box.y <= size.height - 3, "\(box)")
            for other in boxes.dropFirst(index + 1) { #expect(!box.overlaps(other), "\(box.text) covers \(other.text)") }
        }
    }

    func parser(_ parser: XMLParser, didStartElement name: String, namespaceURI: String?, qualifiedName: String?, attributes: [String: String]) {
        if name == "svg", let box = attributes["viewBox"]?.split(separator: " ").compactMap({ Double($0) }), box.count == 4 {
            size = (box[2], box[3])
        }
        if name == "text" { (self.attributes, text) = (attributes, "") }
    }

    func parser(_ parser: XMLParser, foundCharacters string: String) { text += string }

    func parser(_ parser: XMLParser, didEndElement name: String, namespaceURI: String?, qualifiedName: String?) {
        guard name == "text", let attributes, let x = Double(attributes["x"] ?? ""), let y = Double(attributes["y"] ?? "") else { return }
        let width = LabelRows.width(of: text) * (attributes["class"] == "title" ? 1.5 : 1)
        let shift = attributes["text-anchor"] == "end" ? width : attributes["text-anchor"] == "middle" ? width / 2 : 0
        boxes.append(Box(text: text, x: x - shift, y: y, width: width))
        self.attributes = nil
    }
}
