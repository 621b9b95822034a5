import Glibc
import Plimsoll

/// The units of a supervisor, as `UNITS.yaml` says them. See docs/Units.md.
///
/// A file is taken as a whole or not at all: everything that is unknown, given twice, of the wrong kind or out of range is a problem, and all problems are
/// told at once, each with its line and column.
public struct UnitsFile: Sendable, Hashable {
    /// In the order of the file.
    public var units: [ServiceUnit]
    /// What `policy:` says, by name. What the names mean is for whoever decides.
    public var policy: [String: Setting]

    /// A value of `policy:`: a number or a time, and where it stands, for saying what is wrong with it.
    public struct Setting: Sendable, Hashable {
        public var text: String
        public var line: Int
        public var column: Int

        /// `nil` if it isn't a plain number.
        public var number: Double? { UnitValues.number(text) }
        /// `nil` if it isn't a time such as `250ms`, `30s`, `10m` or `1h`.
        public var duration: Duration? { UnitValues.duration(text) }
    }

    /// A file longer than that is none that people write.
    public static let maximumLength = 1 << 20
    /// More units than that are no units of one machine.
    public static let maximumUnits = 1000

    /// Reads `text`; `name` stands for it in problems.
    public init(_ text: String, name: String = "UNITS.yaml") throws(UnitsFileError) {
        guard text.utf8.count <= Self.maximumLength else {
            throw UnitsFileError(name, "the file has \(text.utf8.count) bytes; allowed are \(Self.maximumLength)")
        }
        var reader = UnitsReader(file: name)
        let (root, problems) = try UnitsYAML.compose(text, file: name)
        reader.problems = problems
        reader.read(root)
        guard reader.problems.isEmpty else { throw UnitsFileError(name, reader.problems) }
        units = reader.units
        policy = reader.policy
    }

    /// Reads the file at `path`.
    public init(path: String) throws(UnitsFileError) {
        let file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard file >= 0 else { throw UnitsFileError(path, "it can't be opened: \(String(cString: strerror(errno)))") }
        defer { close(file) }
        var status = stat()
        guard fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { throw UnitsFileError(path, "it is not a regular file") }
        // One more byte than is allowed tells a file that is longer.
        var bytes = [UInt8](repeating: 0, count: Self.maximumLength + 1), count = 0
        while count < bytes.count {
            let taken = bytes.withUnsafeMutableBytes { read(file, $0.baseAddress! + count, $0.count - count) }
            if taken < 0, errno == EINTR { continue }
            guard taken >= 0 else { throw UnitsFileError(path, "it can't be read: \(String(cString: strerror(errno)))") }
            if taken == 0 { break }
            count += taken
        }
        guard count <= Self.maximumLength else { throw UnitsFileError(path, "the file has more than \(Self.maximumLength) bytes, which are allowed") }
        guard let text = String(validating: bytes[..<count], as: UTF8.self) else { throw UnitsFileError(path, "it is not UTF-8 text") }
        try self.init(text, name: path)
    }
}
