/// Which groups this process is in, as `/proc/self/cgroup` tells it: paths below the root of its cgroup namespace.
package struct Membership: Equatable, Sendable {
    /// The path in the version 2 hierarchy; `nil` without one.
    package var unified: String?
    /// The path in the version 1 hierarchy that has the memory controller, or another one asked for; `nil` without one.
    package var memory: String?

    /// Lines are `ID:CONTROLLERS:PATH`; a path may hold colons, and says so if its group was removed. Lines not understood are passed over.
    package init(_ text: [UInt8], controller: String = "memory") {
        for line in text.split(separator: KernelText.newline) {
            let fields = line.split(separator: UInt8(ascii: ":"), maxSplits: 2, omittingEmptySubsequences: false)
            guard fields.count == 3, fields[2].first == UInt8(ascii: "/") else { continue }
            var path = String(decoding: fields[2], as: UTF8.self)
            if path.hasSuffix(" (deleted)") { path.removeLast(10) }
            if fields[0].elementsEqual("0".utf8), fields[1].isEmpty {
                unified = path
            } else if fields[1].split(separator: UInt8(ascii: ",")).contains(where: { $0.elementsEqual(controller.utf8) }) {
                memory = path
            }
        }
    }
}
