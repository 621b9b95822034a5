import Foundation

/// Runs in a file, one a line, appended as they come so that a comparison that breaks off leaves what it has.
public struct RecordFile {
    public let path: String

    public init(_ path: String) { self.path = path }

    /// Appends a run.
    public func append(_ record: RunRecord) throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys]
        var line = try encoder.encode(record)
        line.append(10)
        if !FileManager.default.fileExists(atPath: path) { try Data().write(to: URL(fileURLWithPath: path)) }
        let file = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        defer { try? file.close() }
        try file.seekToEnd()
        try file.write(contentsOf: line)
    }

    /// Returns all runs. A last line that was not written to its end is left out.
    public func records() throws -> [RunRecord] {
        let lines = try Data(contentsOf: URL(fileURLWithPath: path)).split(separator: 10)
        return try lines.enumerated().compactMap { index, line in
            do { return try JSONDecoder().decode(RunRecord.self, from: Data(line)) } catch {
                if index == lines.count - 1 { return nil }
                throw RunProblem("cannot read line \(index + 1) of \(path) because \(error); do: remove that line")
            }
        }
    }
}

/// Why a run, or a comparison, could not be made.
public struct RunProblem: Error, CustomStringConvertible {
    public let description: String
    init(_ description: String) { self.description = description }
}
