import Glibc

/// Who holds file locks that others may wait for (C48, K37): frozen with one of them, a process stops all that want it.
package struct LockTable: Sendable, Hashable {
    /// One line of `/proc/locks`.
    package struct Lock: Sendable, Hashable {
        /// `POSIX`, `FLOCK`, `OFDLCK`, `LEASE`, `DELEG`.
        package var kind: String
        /// Who took it; -1 where it is an open file's and no process's.
        package var pid: Int32
        /// Device and inode, as the kernel writes them.
        package var file: String
        /// Somebody waits for it now.
        package var isWantedByOthers: Bool
    }

    package private(set) var locks: [Lock] = []

    /// Lines are `ID: KIND MODE ACCESS PID DEVICE:INODE START END`, and with `->` behind the ID of the lock that is waited for (fs/locks.c). Lines not
    /// understood are passed over.
    package init(_ text: some Collection<UInt8>) {
        var byID: [Substring: Int] = [:]
        for line in String(decoding: Array(text), as: UTF8.self).split(separator: "\n") {
            var words = line.split(separator: " ")[...]
            guard let id = words.popFirst(), id.last == ":", id.dropLast().allSatisfy(\.isNumber) else { continue }
            if words.first?.hasPrefix("->") == true {
                if let index = byID[id] { locks[index].isWantedByOthers = true }
                continue
            }
            let fields = Array(words)
            guard fields.count >= 5, let pid = Int32(fields[3]), pid > 0 || pid == -1, fields[4].split(separator: ":").count == 3 else { continue }
            byID[id] = locks.count
            locks.append(Lock(kind: String(fields[0]), pid: pid, file: String(fields[4]), isWantedByOthers: false))
        }
    }

    /// Those of the machine now, as far as this process's namespace shows them.
    package init() { self.init((try? GroupText.read("/proc/locks").get()) ?? []) }

    /// The locks that `processes` have taken.
    package func held(by processes: Set<Int32>) -> [Lock] { locks.filter { processes.contains($0.pid) } }

    /// So many descriptors are looked at: half a million take seconds.
    package static let mostDescriptors = 4096

    /// Who of `processes` holds a lock, and those too of open files, which name no process in the table and are found with the files
    /// (`/proc/PID/fdinfo`). A `flock` that was inherited is found in every process that has the file.
    ///
    /// - Parameter most: how many descriptors are looked at, of all together; of a process with more a lock is assumed.
    package static func holders(among processes: Set<Int32>, most: Int = mostDescriptors) -> Set<Int32> {
        let table = LockTable()
        var holders = Set(table.held(by: processes).map(\.pid))
        guard table.locks.contains(where: { $0.kind == "OFDLCK" || $0.kind == "FLOCK" }) else { return holders }
        var rest = most
        for pid in processes.subtracting(holders) where hasLockedFile(pid, &rest) {
            holders.insert(pid)
            // One is enough to know that the unit can't stand still.
            if rest <= 0 { break }
        }
        return holders
    }

    private static func hasLockedFile(_ pid: Int32, _ rest: inout Int) -> Bool {
        guard let stream = opendir("/proc/\(pid)/fdinfo") else { return false }
        defer { closedir(stream) }
        while let entry = readdir(stream) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) { String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self)) }
            guard name != ".", name != ".." else { continue }
            rest -= 1
            if rest < 0 { return true }
            if case .success(let text) = GroupText.read("/proc/\(pid)/fdinfo/\(name)"), isLocked(text) { return true }
        }
        return false
    }

    /// Whether a text of fdinfo has a `lock:` line.
    package static func isLocked(_ text: [UInt8]) -> Bool { text.split(separator: UInt8(ascii: "\n")).contains { $0.starts(with: "lock:".utf8) } }
}
