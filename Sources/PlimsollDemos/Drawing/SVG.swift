import Plimsoll

/// Elements of a drawing, with text escaped.
package struct SVG {
    private var body = ""

    package init() {}

    /// Returns a coordinate: never an exponent or a word, for any input.
    package static func coordinate(_ value: Double) -> String {
        value.isFinite ? Text.number(min(1e6, max(-1e6, value)), decimals: 2) : "0"
    }

    package mutating func line(_ from: (x: Double, y: Double), _ to: (x: Double, y: Double), _ style: String) {
        let c = Self.coordinate
        body +=
            "<line x1=\"\(c(from.x))\" y1=\"\(c(from.y))\" x2=\"\(c(to.x))\" y2=\"\(c(to.y))\" class=\"\(style)\"/>\n"
    }

    package mutating func path(_ points: [(x: Double, y: Double)], _ style: String) {
        guard points.count > 1 else { return }
        let steps = points.enumerated().map {
            "\($0 == 0 ? "M" : "L")\(Self.coordinate($1.x)) \(Self.coordinate($1.y))"
        }
        body += "<path d=\"\(steps.joined())\" class=\"\(style)\"/>\n"
    }

    /// Adds a rectangle. `title` is the tooltip.
    package mutating func rectangle(x: Double, y: Double, width: Double, height: Double, _ style: String, title: String)
    {
        let c = Self.coordinate
        body +=
            "<rect x=\"\(c(x))\" y=\"\(c(y))\" width=\"\(c(max(0, width)))\" height=\"\(c(height))\" class=\"\(style)\">"
        body += "<title>\(escaped(printable(title)))</title></rect>\n"
    }

    /// Defines a hatch pattern of the style `hatchline`, for areas with `fill: url(#hatch)`.
    package mutating func hatching() {
        body +=
            "<defs><pattern id=\"hatch\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
        body += "<line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"7\" class=\"hatchline\"/></pattern></defs>\n"
    }

    package enum Anchor: String { case start, middle, end }

    package mutating func text(_ text: String, x: Double, y: Double, _ style: String = "", anchor: Anchor = .start) {
        let place = "x=\"\(Self.coordinate(x))\" y=\"\(Self.coordinate(y))\" text-anchor=\"\(anchor.rawValue)\""
        body += "<text \(place) class=\"\(style)\">\(escaped(printable(text)))</text>\n"
    }

    /// Returns the whole document.
    package func document(width: Int, height: Int, title: String, description: String, style: String) -> String {
        """
        <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 \(width) \(height)" role="img" aria-labelledby="title desc">
        <title id="title">\(escaped(printable(title)))</title>
        <desc id="desc">\(escaped(printable(description)))</desc>
        <style>
        \(style)
        </style>
        <rect width="\(width)" height="\(height)" class="paper"/>
        \(body)</svg>

        """
    }
}
