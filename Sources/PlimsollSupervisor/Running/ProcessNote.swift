import Glibc

/// What the supervisor after this one has to know of a unit: which process is its first, by its number and when it was started, lest another has that number by
/// then; and which groups were made for it, by what no later group has.
struct ProcessNote {
    private let path: String
    private static let suffix = ".process"

    init(_ directory: String, _ unit: String) { path = "\(directory)/\(unit)\(Self.suffix)" }

    /// The units that there are notes of.
    static func units(in directory: String) -> [String] {
        guard let stream = opendir(directory) else { return [] }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) { String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self)) }
            if name.hasSuffix(suffix), GroupRoot.isName(String(name.dropLast(suffix.count))) { names.append(String(name.dropLast(suffix.count))) }
        }
        return names
    }

    /// - Parameter child: `nil` while none runs.
    func write(_ child: Child?, _ group: UnitGroup) {
        var text = child.flatMap { child in child.started.map { "\(child.pid) \($0)\n" } } ?? "-\n"
        for directory in group.directories where directory.isOurs {
            text += "\(directory.hierarchy.rawValue) \(directory.identity.device) \(directory.identity.inode) \(directory.path)\n"
        }
        let file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard file >= 0 else { return }
        defer { close(file) }
        let bytes = Array(text.utf8)
        _ = Glibc.write(file, bytes, bytes.count)
    }

    private var lines: [Substring] {
        guard case .success(let text) = GroupText.read(path) else { return [] }
        return String(decoding: text, as: UTF8.self).split(separator: "\n")
    }

    /// `nil` if there is none that makes sense: then its group still says who runs.
    func read() -> (pid: Int32, started: UInt64)? {
        let words = (lines.first ?? "").split(separator: " ")
        guard words.count == 2, let pid = Int32(words[0]), pid > 0, let started = UInt64(words[1]), started > 0 else { return nil }
        return (pid, started)
    }

    /// Its groups, as far as they are the same still: whatever else has their paths by now is somebody's own (K38).
    var groups: [GroupDirectory] {
        lines.dropFirst().compactMap { line in
            let words = line.split(separator: " ", maxSplits: 3)
            guard words.count == 4, let hierarchy = Hierarchy(rawValue: String(words[0])),
                let directory = try? GroupDirectory(hierarchy, String(words[3]), isOurs: true)
            else { return nil }
            return "\(directory.identity.device)" == words[1] && "\(directory.identity.inode)" == words[2] ? directory : nil
        }
    }

    func remove() { unlink(path) }
}
