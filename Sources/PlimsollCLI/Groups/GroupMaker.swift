import Glibc
import Plimsoll

/// Makes groups of our own, or says why that cannot be.
struct GroupMaker {
    let places: GroupPlaces

    init(places: GroupPlaces = .own) { self.places = places }

    /// Why no group could be made, hierarchy by hierarchy.
    struct Refusal: Error, CustomStringConvertible {
        var reasons: [String]
        var description: String { "no control group can be made here: " + reasons.joined(separator: "; ") }

        /// What a person can do about it.
        static let remedy = """
            run it as root, in a delegated group (systemd-run --user --scope -p Delegate=yes …, or Delegate=yes in a unit), \
            or in a virtual machine with `make vm`
            """
    }

    /// A new group named after this process and `name`.
    ///
    /// - Parameters:
    ///   - allowsSwap: whether what exceeds the limit may go to swap instead of killing.
    func make(_ name: String, limit: ByteCount?, high: ByteCount? = nil, allowsSwap: Bool = false) throws(Refusal) -> ControlGroup {
        var reasons: [String] = []
        let directoryName = "plimsoll-\(getpid())-\(name)"
        for candidate in candidates(&reasons) {
            if candidate.version == .one, high != nil {
                reasons.append("memory.high is known to cgroup v2 only, and memory is on v1 here")
                continue
            }
            let directory = candidate.parent + "/" + directoryName
            guard mkdir(directory, 0o755) == 0 else {
                reasons.append("\(directory): \(String(cString: strerror(errno)))")
                continue
            }
            let group = ControlGroup(
                version: candidate.version, memory: directory, stall: candidate.version == .two ? directory : makeStall(directoryName))
            do {
                if let limit {
                    try group.setLimit(limit)
                    if !allowsSwap { group.forbidSwap(beyond: limit) }
                }
                if let high { try group.setHigh(high) }
                return group
            } catch {
                group.remove()
                reasons.append("\(error)")
            }
        }
        throw Refusal(reasons: reasons)
    }

    private struct Candidate {
        var version: ControlGroup.Version
        var parent: String
    }

    /// Places where a child has a memory controller, best first.
    private func candidates(_ reasons: inout [String]) -> [Candidate] {
        if let versionOne = places.versionOne { return [Candidate(version: .one, parent: versionOne)] }
        guard let own = places.unified else {
            reasons.append("no cgroup file system with a memory controller is mounted, or the own group is not visible in it")
            return []
        }
        var found: [Candidate] = []
        if passesOnMemory(own) {
            found.append(Candidate(version: .two, parent: own))
        } else if words(own + "/cgroup.controllers").contains("memory") {
            do {
                // Refused while processes are in the group itself, the root group excepted.
                try ControlFile.write("+memory", to: own + "/cgroup.subtree_control")
                found.append(Candidate(version: .two, parent: own))
            } catch {
                reasons.append("\(error)")
            }
        } else {
            reasons.append("\(own) has no memory controller")
        }
        // Beside the own group, where whoever delegated has prepared that. The parent's limits hold there, too.
        if let slash = own.lastIndex(of: "/"), case let parent = String(own[..<slash]), passesOnMemory(parent) {
            found.append(Candidate(version: .two, parent: parent))
        }
        return found
    }

    private func passesOnMemory(_ directory: String) -> Bool { words(directory + "/cgroup.subtree_control").contains("memory") }

    private func words(_ path: String) -> [Substring] { ControlFile.text(path)?.split(whereSeparator: \.isWhitespace) ?? [] }

    /// On a hybrid host the version 2 side has stall times for groups, without any controller.
    private func makeStall(_ name: String) -> String? {
        guard let directory = places.unified.map({ $0 + "/" + name }), mkdir(directory, 0o755) == 0 else { return nil }
        guard access(directory + "/memory.pressure", R_OK) == 0 else {
            rmdir(directory)
            return nil
        }
        return directory
    }
}
