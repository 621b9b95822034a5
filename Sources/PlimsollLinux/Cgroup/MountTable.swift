/// The mounts of the cgroup hierarchies, from `/proc/self/mountinfo`.
package struct MountTable: Equatable, Sendable {
    /// One mount of a hierarchy.
    package struct Mount: Equatable, Sendable {
        /// The group visible at `point`, as a path from the root of our cgroup namespace: `/..` is above.
        package var root: String
        /// The directory in our file system.
        package var point: String
    }

    /// Mounts of the version 2 hierarchy, latest first.
    package private(set) var unified: [Mount] = []
    /// Mounts of the version 1 hierarchy with the memory controller, or another requested one, latest first.
    package private(set) var memory: [Mount] = []

    /// Parses lines of the form `ID PARENT DEVICE ROOT POINT OPTIONS [TAG...] - TYPE SOURCE OPTIONS`, with any number
    /// of tags. Lines not understood are skipped.
    package init(_ text: [UInt8], controller: String = "memory") {
        for line in text.split(separator: KernelText.newline) {
            let fields = line.split(separator: KernelText.space)
            guard fields.count >= 9, let dash = fields[6...].firstIndex(where: { $0.elementsEqual("-".utf8) }),
                dash + 1 < fields.count
            else {
                continue
            }
            let mount = Mount(root: Self.unescaped(fields[3]), point: Self.unescaped(fields[4]))
            guard mount.root.utf8.first == UInt8(ascii: "/"), mount.point.utf8.first == UInt8(ascii: "/") else {
                continue
            }
            if fields[dash + 1].elementsEqual("cgroup2".utf8) {
                unified.insert(mount, at: 0)
            } else if fields[dash + 1].elementsEqual("cgroup".utf8), let options = fields.last,
                options.split(separator: UInt8(ascii: ",")).contains(where: { $0.elementsEqual(controller.utf8) })
            {
                memory.insert(mount, at: 0)
            }
        }
    }

    /// Undoes the kernel's escapes: a space is written `\040`.
    private static func unescaped(_ field: ArraySlice<UInt8>) -> String {
        var bytes: [UInt8] = []
        var rest = field
        while let byte = rest.popFirst() {
            let digits = rest.prefix(3)
            if byte == UInt8(ascii: "\\"), digits.count == 3,
                digits.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "7")).contains($0) })
            {
                bytes.append(UInt8(truncatingIfNeeded: digits.reduce(0) { $0 * 8 + Int($1 - UInt8(ascii: "0")) }))
                rest = rest.dropFirst(3)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
