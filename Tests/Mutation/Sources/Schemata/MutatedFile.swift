import SwiftOperators
import SwiftParser
import SwiftSyntax

/// A file with all its mutants, each behind a switch.
public struct MutatedFile: Sendable {
    public let mutants: [Mutant]
    /// The source with the switches. Lines have the numbers of the original, by `#sourceLocation`.
    public let source: String

    /// Finds the mutants of `source`.
    ///
    /// - Parameters:
    ///   - file: path of the file from the root of the repository.
    ///   - module: C module with the switch, `plimsoll_mutant(_:)`.
    ///   - firstID: identifier of the first mutant.
    ///   - excluded: lines whose mutants don't compile, by number.
    public init(file: String, source: String, module: String, firstID: Int, excluded: [Int: Exclusion] = [:]) {
        let parsed = Parser.parse(source: source)
        // A sequence that can't be folded has operators of the library itself: the sequence stays unfolded and has no
        // mutants.
        let folded = OperatorTable.standardOperators.foldAll(parsed) { _ in }.as(SourceFileSyntax.self) ?? parsed
        let finder = MutantFinder(file: file, source: source, tree: folded, firstID: firstID, excluded: excluded)
        finder.walk(folded)
        mutants = finder.mutants
        guard !mutants.isEmpty else {
            self.source = source
            return
        }
        let sorted = finder.insertions.sorted {
            if $0.offset != $1.offset { return $0.offset < $1.offset }
            if $0.isSuffix != $1.isSuffix { return $0.isSuffix }
            return $0.isSuffix ? $0.depth > $1.depth : $0.depth < $1.depth
        }
        var bytes: [UInt8] = [], rest = Array(source.utf8)[...]
        for insertion in sorted {
            bytes += rest[..<insertion.offset]
            bytes += insertion.text.utf8
            rest = rest[(insertion.offset + insertion.removed)...]
        }
        bytes += rest
        let header = "import \(module)\n#sourceLocation(file: \"\(file)\", line: 1)\n"
        self.source = header + String(decoding: bytes, as: UTF8.self)
    }
}

/// The mutants that a line may not have, because they don't compile.
public enum Exclusion: String, Sendable, Codable {
    /// Mutants of arithmetic: bytes times a number has an operator, and bytes divided by a number has none.
    case arithmetic
    case all

    func covers(_ kind: Mutant.Kind) -> Bool { self == .all || kind == .arithmetic }
}
