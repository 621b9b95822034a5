import Glibc
import PlimsollLinux

/// The facts about a unit that the next supervisor needs. The first process is identified by number and start time, in
/// case the number has been reused. The groups made for the unit are identified by properties that no later group
/// shares.
struct ProcessNote {
    private let path: String
    private static let suffix = ".process"
    /// The line of a process that has not started up yet, as far as known.
    private static let starting = "starting"

    init(_ directory: String, _ unit: String) { path = "\(directory)/\(unit)\(Self.suffix)" }

    /// Returns the names of units with a note in `directory`.
    static func units(in directory: String) -> [String] {
        HostKernel.listing(of: directory).names.filter { $0.hasSuffix(suffix) }
            .map { String($0.dropLast(suffix.count)) }.filter(UnitValues.isUnitName)
    }

    /// Replaces the note atomically: if this process is killed meanwhile, the previous note remains.
    ///
    /// - Parameters:
    ///   - child: the first process; `nil` while none runs.
    ///   - group: the unit's group; `nil` if the next supervisor is not to end the unit.
    ///   - limits: the limits that the next supervisor must lift.
    ///   - isStarting: true if the process, or the next one, has not reported its start yet.
    /// - Returns: the reason for a failed write; `nil` on success.
    func write(
        _ child: Child?, _ group: UnitGroup?, _ limits: [LiftedLimit] = [], isStarting: Bool = false
    ) -> String? {
        var text = child.flatMap { child in child.started.map { "\(child.pid) \($0)\n" } } ?? "-\n"
        if isStarting { text += Self.starting + "\n" }
        for directory in group?.directories ?? [] where directory.isOurs {
            text +=
                "\(directory.hierarchy.rawValue) \(directory.identity.device) \(directory.identity.inode) \(directory.path)\n"
        }
        for limit in limits {
            let directory = limit.directory
            let fields = [
                "lift", directory.hierarchy.rawValue, "\(directory.identity.device)", "\(directory.identity.inode)",
                limit.file, limit.present,
                limit.text,
                directory.path,
            ]
            text += fields.joined(separator: "\t") + "\n"
        }
        let temporary = path + ".new"
        if let number = Self.replace(path, by: temporary, with: Array(text.utf8)) {
            unlink(temporary)
            return
                "cannot write the note \(path), so the next supervisor may not find the process: \(String(cString: strerror(number)))"
        }
        return nil
    }

    private static func replace(_ path: String, by temporary: String, with bytes: [UInt8]) -> Int32? {
        // Removes a partial file left by a killed supervisor.
        unlink(temporary)
        let file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard file >= 0 else { return errno }
        let count = Glibc.write(file, bytes, bytes.count), number = count < 0 ? errno : ENOSPC
        close(file)
        guard count == bytes.count else { return number }
        return rename(temporary, path) == 0 ? nil : errno
    }

    private var lines: [Substring] { (try? openLines()) ?? [] }

    /// - Throws: an error if there may be lines that can't be read now.
    private func openLines() throws(GroupError) -> [Substring] {
        switch GroupText.read(path) {
        case .success(let text): return String(decoding: text, as: UTF8.self).split(separator: "\n")
        case .failure(let failure):
            let error = GroupError(.find, path, .kernel(failure.number))
            if Self.shortages.contains(error.reason) { throw error }
            return []
        }
    }

    /// Returns the noted process; `nil` without a valid entry. The group still shows the running processes in that
    /// case.
    func read() -> (pid: Int32, started: UInt64)? { Self.process(in: lines) }

    private static func process(in lines: [Substring]) -> (pid: Int32, started: UInt64)? {
        let words = (lines.first ?? "").split(separator: " ")
        guard words.count == 2, let pid = Int32(words[0]), pid > 0, let started = UInt64(words[1]), started > 0 else {
            return nil
        }
        return (pid, started)
    }

    /// True if the unit had not reported its start when the note was written.
    var isStarting: Bool { lines.dropFirst().contains { $0 == Self.starting } }

    /// Returns the noted process if that process still runs.
    ///
    /// - Throws: an error if the state can't be determined now.
    func process() throws -> Child? {
        guard let (pid, started) = Self.process(in: try openLines()) else { return nil }
        do throws(ChildError) { return try Child.adopt(pid, started: started) } catch {
            if error.number == ESRCH { return nil }
            throw error
        }
    }

    /// The noted groups that still are the same. Any other group at such a path belongs to another owner (K38).
    ///
    /// - Throws: an error if the state can't be determined now.
    var groups: [GroupDirectory] {
        get throws(GroupError) {
            var groups: [GroupDirectory] = []
            for line in try openLines().dropFirst() {
                let words = line.split(separator: " ", maxSplits: 3)
                guard words.count == 4, let hierarchy = Hierarchy(rawValue: String(words[0])) else { continue }
                do throws(GroupError) {
                    let directory = try GroupDirectory(hierarchy, String(words[3]), isOurs: true)
                    if "\(directory.identity.device)" == words[1], "\(directory.identity.inode)" == words[2] {
                        groups.append(directory)
                    }
                } catch {
                    if Self.shortages.contains(error.reason) { throw error }
                }
            }
            return groups
        }
    }

    /// Errors that may pass. Any other error means that the file is absent.
    private static let shortages: [GroupError.Reason] = [EMFILE, ENFILE, ENOMEM, EINTR, EAGAIN].map { .kernel($0) }

    /// The limits to lift, of groups that still are the same.
    var limits: [LiftedLimit] {
        lines.dropFirst().compactMap { line in
            let fields = line.split(separator: "\t", maxSplits: 7, omittingEmptySubsequences: false).map(String.init)
            guard fields.count == 8, fields[0] == "lift", let hierarchy = Hierarchy(rawValue: fields[1]),
                let directory = try? GroupDirectory(hierarchy, fields[7], isOurs: false),
                "\(directory.identity.device)" == fields[2], "\(directory.identity.inode)" == fields[3],
                !fields[4].contains("/")
            else { return nil }
            return LiftedLimit(directory, fields[4], fields[6], present: fields[5])
        }
    }

    func remove() { unlink(path) }
}
