import Glibc

/// Which process is a unit's first, written down for the supervisor after this one: its number, and when it was started, lest another has that number by then.
struct ProcessNote {
    private let path: String

    init(_ directory: String, _ unit: String) { path = "\(directory)/\(unit).process" }

    func write(_ child: Child) {
        guard let started = child.started else { return remove() }
        let file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard file >= 0 else { return }
        defer { close(file) }
        let text = Array("\(child.pid) \(started)\n".utf8)
        _ = Glibc.write(file, text, text.count)
    }

    /// `nil` if there is none that makes sense: then its group still says who runs.
    func read() -> (pid: Int32, started: UInt64)? {
        guard case .success(let text) = GroupText.read(path) else { return nil }
        let words = String(decoding: text, as: UTF8.self).split(whereSeparator: \.isWhitespace)
        guard words.count == 2, let pid = Int32(words[0]), pid > 0, let started = UInt64(words[1]) else { return nil }
        return (pid, started)
    }

    func remove() { unlink(path) }
}
