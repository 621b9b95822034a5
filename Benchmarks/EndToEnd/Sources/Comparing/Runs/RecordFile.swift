import Foundation

/// Runs in a file, one a line. Each run is appended at once, so that an interrupted comparison keeps the runs so far.
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
        // A write that broke off within a line loses that line alone.
        if try file.seekToEnd() > 0 { line.insert(10, at: line.startIndex) }
        try file.write(contentsOf: line)
    }

    /// Returns the runs of the file, none if there is no file yet. An incomplete line is left out.
    ///
    /// - Parameter mostNeighbours: leaves out runs beside which other processes used more processors than this; `nil`
    ///   for none.
    public func records(mostNeighbours: Double? = nil) throws -> [RunRecord] {
        try allRecords().filter { record in mostNeighbours.map { record.isUndisturbed($0) } ?? true }
    }

    private func allRecords() throws -> [RunRecord] {
        guard FileManager.default.fileExists(atPath: path) else { return [] }
        return try Data(contentsOf: URL(fileURLWithPath: path)).split(separator: 10).compactMap {
            try? JSONDecoder().decode(RunRecord.self, from: Data($0))
        }
    }
}

/// Reason why a run, or a comparison, could not be made.
public struct RunProblem: Error, CustomStringConvertible {
    public let description: String
    init(_ description: String) { self.description = description }
}
