/// Functions that stand for an operator and the operator's mutants. Each module with mutants gets the file.
public enum MutantSwitch {
    /// Names of the functions, by operator.
    static let comparisons = [
        "<": "mutatedLess", "<=": "mutatedLessOrEqual", ">": "mutatedGreater", ">=": "mutatedGreaterOrEqual",
        "==": "mutatedEqual", "!=": "mutatedUnequal",
    ]

    /// Returns the source of the functions.
    ///
    /// - Parameter module: C module with the switch, `plimsoll_mutant(_:)`.
    public static func source(module: String) -> String {
        let ordered = [("<", "<=", ">="), ("<=", "<", ">"), (">", ">=", "<="), (">=", ">", "<")].map { name, boundary, flip in
            """
            @inline(__always)
            func \(comparisons[name]!)<T: Comparable>(_ boundary: Int32, _ flip: Int32, _ a: T, _ b: T) -> Bool {
                if plimsoll_mutant(boundary) { return a \(boundary) b }
                if plimsoll_mutant(flip) { return a \(flip) b }
                return a \(name) b
            }
            """
        }
        let equal = [("==", "!="), ("!=", "==")].map { name, flip in
            """
            @inline(__always)
            func \(comparisons[name]!)<T: Equatable>(_ flip: Int32, _ a: T, _ b: T) -> Bool {
                plimsoll_mutant(flip) ? a \(flip) b : a \(name) b
            }
            """
        }
        return "import \(module)\n\n" + (ordered + equal).joined(separator: "\n\n") + "\n"
    }
}
