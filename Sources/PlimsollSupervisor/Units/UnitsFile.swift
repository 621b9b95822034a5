import Glibc
import Plimsoll

/// The units of a supervisor, parsed from `UNITS.yaml`. See docs/Units.md.
///
/// A file is accepted as a whole or rejected. A problem is anything unknown, duplicate, of the wrong kind or out of
/// range. All problems are reported at once, each with its line and column.
public struct UnitsFile: Sendable, Hashable {
    /// The units, in the order of the file.
    public var units: [ServiceUnit]
    /// The settings under `policy:`, by name. `SupervisorPolicy.init(_:)` interprets the names.
    package var policy: [String: Setting]
    let name: String

    /// A value of `policy:`, a number or a duration, with its position for error messages.
    package struct Setting: Sendable, Hashable {
        package var text: String
        package var line: Int
        package var column: Int

        /// The value as a number; `nil` if the text isn't a plain number.
        package var number: Double? { UnitValues.number(text) }
        /// The value as a duration such as `250ms`, `30s`, `10m` or `1h`; `nil` for other text.
        package var duration: Duration? { UnitValues.duration(text) }
    }

    /// The maximum length of a file in bytes. No hand-written file is longer.
    public static let maximumLength = 1 << 20
    /// The maximum number of units. No single machine has more.
    public static let maximumUnits = 1000

    /// Parses `text`; problems refer to the file as `name`.
    public init(_ text: String, name: String = "UNITS.yaml") throws(UnitsFileError) {
        guard text.utf8.count <= Self.maximumLength else {
            throw UnitsFileError(
                name, "the file has \(text.utf8.count) bytes; allowed are at most \(Self.maximumLength)")
        }
        var reader = UnitsReader(file: name)
        let (root, problems) = try UnitsYAML.compose(text, file: name)
        reader.problems = problems
        reader.read(root)
        guard reader.problems.isEmpty else { throw UnitsFileError(name, reader.problems) }
        units = reader.units
        policy = reader.policy
        self.name = name
    }

    /// Reads the file at `path`.
    public init(path: String) throws(UnitsFileError) {
        let file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard file >= 0 else { throw UnitsFileError(path, "cannot open the file: \(String(cString: strerror(errno)))") }
        defer { close(file) }
        var status = stat()
        guard fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            throw UnitsFileError(path, "the path is not a regular file")
        }
        // One byte more than the maximum reveals a file that is too long.
        var bytes = [UInt8](repeating: 0, count: Self.maximumLength + 1), count = 0
        while count < bytes.count {
            let taken = bytes.withUnsafeMutableBytes { read(file, $0.baseAddress! + count, $0.count - count) }
            if taken < 0, errno == EINTR { continue }
            guard taken >= 0 else {
                throw UnitsFileError(path, "cannot read the file: \(String(cString: strerror(errno)))")
            }
            if taken == 0 { break }
            count += taken
        }
        guard count <= Self.maximumLength else {
            throw UnitsFileError(path, "the file has more than the allowed \(Self.maximumLength) bytes")
        }
        guard let text = String(validating: bytes[..<count], as: UTF8.self) else {
            throw UnitsFileError(path, "the file is not UTF-8 text")
        }
        try self.init(text, name: path)
    }
}
