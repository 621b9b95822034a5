import Foundation
import Schemata

/// Verdicts, one JSON object per line, so that an interrupted run continues at the same place.
struct Results {
    struct Line: Codable {
        var mutant: Mutant
        var verdict: Trials.Verdict
    }

    let file: URL
    private(set) var lines: [Line] = []

    init(_ path: String) throws {
        file = URL(fileURLWithPath: path)
        guard let data = try? Data(contentsOf: file) else { return }
        lines = try data.split(separator: UInt8(ascii: "\n")).map { try JSONDecoder().decode(Line.self, from: $0) }
    }

    func verdict(on mutant: Mutant) -> Trials.Verdict? {
        lines.last {
            $0.mutant.key == mutant.key && $0.mutant.kind == mutant.kind && $0.mutant.repetition == mutant.repetition
        }?.verdict
    }

    mutating func add(_ line: Line) throws {
        lines.append(line)
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        let text = try encoder.encode(line) + Data("\n".utf8)
        if !FileManager.default.fileExists(atPath: file.path) { try Data().write(to: file) }
        let handle = try FileHandle(forWritingTo: file)
        try handle.seekToEnd()
        try handle.write(contentsOf: text)
        try handle.close()
    }
}

/// Mutants that no test can tell from the original, with the reason.
///
/// A line is `FILE | LINE OF SOURCE | COLUMN: CHANGE | REASON`. Lines that begin with `#` are comments.
struct Equivalents {
    private var reasons: [String: String] = [:]

    init(_ file: URL) throws {
        for line in try String(contentsOf: file, encoding: .utf8).split(separator: "\n") where !line.hasPrefix("#") {
            let parts = line.components(separatedBy: " | ")
            guard parts.count >= 4, let reason = parts.last, !reason.isEmpty else {
                throw Failure("\(file.lastPathComponent): expected FILE | LINE OF SOURCE | COLUMN: CHANGE | REASON, found \(line)")
            }
            reasons[parts.dropLast().joined(separator: " | ")] = reason
        }
    }

    func contains(_ mutant: Mutant) -> Bool { reasons[mutant.key] != nil }
}

/// Lines of the source whose mutants must be killed: found by a review, not by chance.
///
/// A line is `FILE | LINE OF SOURCE | WHAT A TEST MUST NOTICE`. Lines that begin with `#` are comments.
struct AimedLines {
    private var lines: Set<String> = []

    /// - Throws: `Failure` if lines have no mutant: the source has changed, and the lines must follow.
    init(_ file: URL, _ mutants: [Mutant]) throws {
        let known = Set(mutants.map(Self.line))
        for text in try String(contentsOf: file, encoding: .utf8).split(separator: "\n") where !text.hasPrefix("#") {
            let parts = text.components(separatedBy: " | ")
            guard parts.count == 3 else {
                throw Failure("\(file.lastPathComponent): expected FILE | LINE OF SOURCE | WHAT A TEST MUST NOTICE, found \(text)")
            }
            lines.insert(parts[0] + " | " + parts[1])
        }
        let gone = lines.subtracting(known)
        if !gone.isEmpty { throw Failure("\(file.lastPathComponent): no mutant is in\n\(gone.sorted().joined(separator: "\n"))") }
    }

    func contains(_ mutant: Mutant) -> Bool { lines.contains(Self.line(mutant)) }

    private static func line(_ mutant: Mutant) -> String { mutant.file + " | " + mutant.text }
}
