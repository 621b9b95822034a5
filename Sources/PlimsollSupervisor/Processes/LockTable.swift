import Glibc

/// The holders of file locks that other processes may wait for (C48, K37). A process frozen with a lock blocks all
/// that want the lock.
package struct LockTable: Sendable, Hashable {
    /// One line of `/proc/locks`.
    package struct Lock: Sendable, Hashable {
        /// `POSIX`, `FLOCK`, `OFDLCK`, `LEASE`, `DELEG`.
        package var kind: String
        /// The process that took the lock; -1 for a lock of an open file description, which has no owning process.
        package var pid: Int32
        /// Device and inode, in the kernel's notation.
        package var file: String
    }

    package private(set) var locks: [Lock] = []

    /// Parses lines of the form `ID: KIND MODE ACCESS PID DEVICE:INODE START END`. Skips malformed lines, and those of
    /// waiting processes, in which `->` follows the ID of the lock (fs/locks.c).
    package init(_ text: some Collection<UInt8>) {
        for line in String(decoding: Array(text), as: UTF8.self).split(separator: "\n") {
            var words = line.split(separator: " ")[...]
            guard let id = words.popFirst(), id.last == ":", id.dropLast().allSatisfy(\.isNumber),
                words.first?.hasPrefix("->") != true
            else { continue }
            let fields = Array(words)
            guard fields.count >= 5, let pid = Int32(fields[3]), pid > 0 || pid == -1,
                fields[4].split(separator: ":").count == 3
            else { continue }
            locks.append(Lock(kind: String(fields[0]), pid: pid, file: String(fields[4])))
        }
    }

    /// Reads the locks of the machine, as far as visible in this process's namespace.
    package init() { self.init((try? GroupText.read("/proc/locks").get()) ?? []) }

    /// Returns the locks that `processes` have taken.
    package func held(by processes: Set<Int32>) -> [Lock] { locks.filter { processes.contains($0.pid) } }

    /// Greatest number of descriptors that are checked: half a million take seconds.
    package static let mostDescriptors = 4096

    /// Returns the processes that hold a lock. Locks of open file descriptions name no process in the table, so they
    /// are looked up by file (`/proc/PID/fdinfo`). An inherited `flock` is found in every process that has the file.
    ///
    /// - Parameter most: greatest number of descriptors checked in total. A process with more is assumed to hold a
    ///   lock. So is a process whose locks can't be read for now, as descriptors or memory are short.
    package static func holders(among processes: Set<Int32>, most: Int = mostDescriptors) -> Set<Int32> {
        let table: LockTable
        switch GroupText.read("/proc/locks") {
        case .success(let text): table = LockTable(text)
        case .failure(let failure): return GroupDirectory.mayBeThere(failure.number) ? processes : []
        }
        var holders = Set(table.held(by: processes).map(\.pid))
        guard table.locks.contains(where: { $0.kind == "OFDLCK" || $0.kind == "FLOCK" }) else { return holders }
        var rest = most
        for pid in processes.subtracting(holders) where hasLockedFile(pid, &rest) {
            holders.insert(pid)
            // One holder is enough to rule out freezing the unit.
            if rest <= 0 { break }
        }
        return holders
    }

    /// Returns true if a process of `group` holds a lock, or may hold one because not all can be read for now.
    static func mayBeHeld(in group: UnitGroup, most: Int = mostDescriptors) -> Bool {
        var processes = group.directories.isEmpty ? group.processes : []
        for directory in group.directories {
            let (pids, isWhole) = directory.list()
            guard isWhole else { return true }
            processes.formUnion(pids)
        }
        return !holders(among: processes, most: most).isEmpty
    }

    private static func hasLockedFile(_ pid: Int32, _ rest: inout Int) -> Bool {
        guard let stream = opendir("/proc/\(pid)/fdinfo") else { return GroupDirectory.mayBeThere(errno) }
        defer { closedir(stream) }
        while let entry = readdir(stream) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self))
            }
            guard name != ".", name != ".." else { continue }
            rest -= 1
            if rest < 0 { return true }
            switch GroupText.read("/proc/\(pid)/fdinfo/\(name)") {
            case .success(let text): if isLocked(text) { return true }
            case .failure(let failure): if GroupDirectory.mayBeThere(failure.number) { return true }
            }
        }
        return false
    }

    /// Returns true if a text of fdinfo has a `lock:` line.
    package static func isLocked(_ text: [UInt8]) -> Bool {
        text.split(separator: UInt8(ascii: "\n")).contains { $0.starts(with: "lock:".utf8) }
    }
}
