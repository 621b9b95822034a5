/// The groups of this process, from `/proc/self/cgroup`: paths below the root of the process's cgroup namespace.
package struct Membership: Equatable, Sendable {
    /// The path in the version 2 hierarchy; `nil` without one.
    package var unified: String?
    /// The path in the version 1 hierarchy that has the memory controller, or another requested one; `nil` without one.
    package var memory: String?

    /// Parses lines of the form `ID:CONTROLLERS:PATH`. A path may hold colons, and has a suffix if the group was
    /// removed. Lines not understood are skipped.
    package init(_ text: [UInt8], controller: String = "memory") {
        for line in text.split(separator: KernelText.newline) {
            let fields = line.split(separator: UInt8(ascii: ":"), maxSplits: 2, omittingEmptySubsequences: false)
            guard fields.count == 3, fields[2].first == UInt8(ascii: "/") else { continue }
            var path = String(decoding: fields[2], as: UTF8.self)
            if path.hasSuffix(" (deleted)") { path.removeLast(10) }
            if fields[0].elementsEqual("0".utf8), fields[1].isEmpty {
                unified = path
            } else if fields[1].split(separator: UInt8(ascii: ",")).contains(where: {
                $0.elementsEqual(controller.utf8)
            }) {
                memory = path
            }
        }
    }
}
