public import Plimsoll

/// A pressure history as a drawing, one character a second: `_` normal, `-` warning, `#` critical.
public struct PressureTrace: Sendable, Hashable, LosslessStringConvertible {
    /// What the readings show, second by second.
    public var levels: [PressureLevel]

    /// The history drawn; spaces are ignored.
    ///
    /// - Precondition: the drawing holds nothing but `_`, `-`, `#` and spaces. `init?(_:)` of a `Substring` reads untrusted text.
    public init(_ drawing: String) {
        guard let trace = PressureTrace(drawing[...]) else {
            preconditionFailure("a pressure trace is drawn with _ (normal), - (warning) and # (critical), not \"\(drawing)\"")
        }
        self = trace
    }

    /// The history drawn, or `nil` if it holds other characters.
    public init?(_ drawing: Substring) {
        levels = []
        for character in drawing where character != " " {
            switch character {
            case "_": levels.append(.normal)
            case "-": levels.append(.warning)
            case "#": levels.append(.critical)
            default: return nil
            }
        }
    }

    /// The drawing.
    public var description: String { levels.map(\.drawn).joined() }

    /// A reading a second of a process under a limit of one gibibyte.
    public var readings: [PressureReading] {
        levels.enumerated().map { second, level in
            let limit = ByteCount.gibibytes(1)
            let available: ByteCount =
                switch level {
                case .normal: limit * 0.5
                case .warning: limit * 0.15
                case .critical: limit * 0.05
                }
            return PressureReading(
                at: .seconds(second), boundary: .maximum, limit: limit, usage: limit - available, available: available)
        }
    }
}

extension PressureLevel {
    /// The level's character in drawings.
    public var drawn: String {
        switch self {
        case .normal: "_"
        case .warning: "-"
        case .critical: "#"
        }
    }
}
