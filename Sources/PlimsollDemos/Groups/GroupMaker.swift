import Glibc
package import Plimsoll
import PlimsollLifecycle
package import PlimsollLinux
import PlimsollSupervisor

/// Makes control groups, or reports why none can be made.
package struct GroupMaker {
    /// The group of this process. New groups are made below.
    let own: ControlGroup

    package init(own: ControlGroup = ControlGroup(HostKernel())) { self.own = own }

    /// Error if no group could be made, with a reason for each hierarchy.
    package struct Refusal: Error, CustomStringConvertible {
        var reasons: [String]
        package var description: String { "cannot make a control group: " + reasons.joined(separator: "; ") }

        /// Advice for the user.
        package static let remedy = """
            run it as root, in a delegated group (systemd-run --user --scope -p Delegate=yes …, or Delegate=yes in a unit), \
            or in a virtual machine with `make vm`
            """
    }

    /// Makes a new group named after this process and `name`.
    ///
    /// - Parameters:
    ///   - allowsSwap: true if memory beyond the limit may be swapped out instead of causing a kill.
    package func make(_ name: String, limit: ByteCount?, high: ByteCount? = nil, allowsSwap: Bool = false)
        throws(Refusal)
        -> LimitedGroup
    {
        var reasons: [String] = []
        let directoryName = "plimsoll-\(getpid())-\(name)"
        for candidate in candidates(&reasons) {
            if candidate.version == .v1, high != nil {
                reasons.append("memory.high needs cgroup v2, and memory is on v1 here")
                continue
            }
            let directory = candidate.parent + "/" + directoryName
            guard mkdir(directory, 0o755) == 0 else {
                reasons.append("\(directory): \(String(cString: strerror(errno)))")
                continue
            }
            let group = LimitedGroup(
                version: candidate.version, memory: directory,
                stall: candidate.version == .v2 ? directory : makeStall(directoryName))
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

    /// Returns the directories below which a child has a memory controller, best first.
    private func candidates(_ reasons: inout [String]) -> [Candidate] {
        guard case .directory(let directory, let top) = own.memory else {
            if case .hidden(let reason) = own.memory { reasons.append(reason) }
            return []
        }
        if own.version == .v1 { return [Candidate(version: .v1, parent: directory)] }
        var found: [Candidate] = []
        if passesOnMemory(directory) {
            found.append(Candidate(version: .v2, parent: directory))
        } else if GroupText.words(directory + "/cgroup.controllers").contains("memory") {
            do {
                // The kernel refuses this write while processes are in the group itself, except in the root group.
                try ControlFile.write("+memory", to: directory + "/cgroup.subtree_control")
                found.append(Candidate(version: .v2, parent: directory))
            } catch {
                reasons.append("\(error)")
            }
        } else {
            reasons.append("\(directory) has no memory controller")
        }
        // A sibling of the own group, where the delegating manager has prepared for that. The parent's limits apply
        // there, too.
        if directory != top, let slash = directory.lastIndex(of: "/"), case let parent = String(directory[..<slash]),
            passesOnMemory(parent)
        {
            found.append(Candidate(version: .v2, parent: parent))
        }
        return found
    }

    private func passesOnMemory(_ directory: String) -> Bool {
        GroupText.words(directory + "/cgroup.subtree_control").contains("memory")
    }

    /// Makes a version 2 group for stall times on a hybrid host. Stall times need no controller.
    private func makeStall(_ name: String) -> String? {
        guard let directory = own.unified.path.map({ $0 + "/" + name }), mkdir(directory, 0o755) == 0 else {
            return nil
        }
        guard access(directory + "/memory.pressure", R_OK) == 0 else {
            rmdir(directory)
            return nil
        }
        return directory
    }
}
