public import Plimsoll

/// A pressure history as text, one character for each second: `_` normal, `-` warning, `#` critical.
public struct PressureTrace: Sendable, Hashable, LosslessStringConvertible {
    /// The levels, second by second.
    public var levels: [PressureLevel]

    /// Creates a trace from a drawing; spaces are ignored.
    ///
    /// - Precondition: The drawing contains only `_`, `-`, `#` and spaces. For untrusted text, use `init?(_:)` with a
    ///   `Substring`.
    public init(_ drawing: String) {
        guard let trace = PressureTrace(drawing[...]) else {
            preconditionFailure(
                "a pressure trace is drawn with _ (normal), - (warning) and # (critical), not \"\(drawing)\"")
        }
        self = trace
    }

    /// Creates a trace from a drawing, or returns `nil` if `drawing` contains other characters.
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

    /// The trace as a drawing.
    public var description: String { levels.map(\.drawn).joined() }

    /// One reading for each second, of a process under a limit of one gibibyte.
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
    /// The character of the level in drawings.
    public var drawn: String {
        switch self {
        case .normal: "_"
        case .warning: "-"
        case .critical: "#"
        }
    }
}
