import Glibc

/// Where groups of our own could be made: below the own group, in each hierarchy that matters.
///
/// Found in the two files that tell (`/proc/self/cgroup`, `/proc/self/mountinfo`), never by a fixed path.
struct GroupPlaces: Equatable {
    /// The own directory in the version 2 hierarchy; `nil` where it is not mounted or not visible.
    var unified: String?
    /// The own directory in version 1's memory hierarchy.
    var versionOne: String?

    static var own: GroupPlaces {
        GroupPlaces(
            membership: ControlFile.text("/proc/self/cgroup") ?? "", mounts: ControlFile.text("/proc/self/mountinfo") ?? "")
    }

    init(unified: String? = nil, versionOne: String? = nil) {
        self.unified = unified
        self.versionOne = versionOne
    }

    init(membership: String, mounts: String) {
        var paths: (unified: String?, versionOne: String?) = (nil, nil)
        for line in membership.split(separator: "\n") {
            // Two colons only: a path may hold more of them.
            let fields = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
            guard fields.count == 3 else { continue }
            if fields[0] == "0", fields[1].isEmpty { paths.unified = String(fields[2]) }
            if fields[1].split(separator: ",").contains("memory") { paths.versionOne = String(fields[2]) }
        }
        for mount in mounts.split(separator: "\n").compactMap(Mount.init) {
            if mount.type == "cgroup2", unified == nil, let path = paths.unified { unified = mount.directory(of: path) }
            if mount.type == "cgroup", mount.options.contains("memory"), versionOne == nil, let path = paths.versionOne {
                versionOne = mount.directory(of: path)
            }
        }
    }

    /// A line of mountinfo: `36 35 98:0 /root /mount/point rw,… - type source options`.
    private struct Mount {
        var root: String, point: String, type: Substring, options: [Substring]

        init?(_ line: Substring) {
            let words = line.split(separator: " ")
            guard words.count >= 10, let dash = words.firstIndex(of: "-"), dash >= 6, dash + 3 < words.count else { return nil }
            root = unescaped(words[3])
            point = unescaped(words[4])
            type = words[dash + 1]
            options = words[dash + 3].split(separator: ",")
        }

        /// Where a group's path lies in the file system, if this mount shows it.
        func directory(of path: String) -> String? {
            guard !path.hasPrefix("/.."), !root.hasPrefix("/..") else { return nil }
            if root == "/" { return path == "/" ? point : point + path }
            if path == root { return point }
            return path.hasPrefix(root + "/") ? point + path.dropFirst(root.count) : nil
        }
    }
}

/// mountinfo writes blanks, tabs, newlines and backslashes as three octal digits.
private func unescaped(_ word: Substring) -> String {
    var bytes: [UInt8] = []
    var rest = Array(word.utf8)[...]
    while let byte = rest.popFirst() {
        if byte == UInt8(ascii: "\\"), rest.count >= 3, let code = UInt8(String(decoding: rest.prefix(3), as: UTF8.self), radix: 8) {
            bytes.append(code)
            rest = rest.dropFirst(3)
        } else {
            bytes.append(byte)
        }
    }
    return String(decoding: bytes, as: UTF8.self)
}
