#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll

/// All groups from ours up to the highest visible one. Each may have a limit. Usage is counted at the level of the
/// limit: sibling groups share it (T16, K18).
///
/// A linked list: traversing it at each reading allocates nothing in any build.
final class LimitChain {
    /// The own group, or the first above with the memory controller on; `nil` if none is visible.
    let first: LimitLevel?
    /// True if a level could not be opened that may exist.
    let isUncertain: Bool
    /// The lists of controllers of the levels with the memory controller off, if the own group is one; otherwise none.
    private let without: [KernelFile]

    /// Opens the levels of `group` whose memory controller is on. A level need not have a limit.
    init(_ group: ControlGroup, _ kernel: any Kernel, _ buffer: TextBuffer) {
        guard case .directory(let own, let top) = group.memory else {
            first = nil
            isUncertain = false
            without = []
            return
        }
        var (first, last): (LimitLevel?, LimitLevel?)
        var without: [KernelFile] = []
        var isUncertain = false
        var directory = own
        while true {
            let level = LimitLevel(directory, group.version, kernel, buffer)
            // The top of the hierarchy itself has no limits. A group below one with the controller on may have it off.
            if level.maximumFile.open() {
                first = first ?? level
                last?.parent = level
                last = level
            } else if let failure = level.maximumFile.failure, failure.isLasting {
                let controllers = KernelFile(directory + "/cgroup.controllers", kernel, buffer)
                switch controllers.read({ LimitChain.namesMemory($0) }) {
                case false?: without.append(controllers)
                // The controller is being turned on. Only the top of the hierarchy has the controller and no such file.
                case true? where directory != top && failure.number == ENOENT: isUncertain = true
                default: break
                }
            } else {
                isUncertain = true
            }
            guard directory.utf8.count > top.utf8.count, let slash = directory.lastIndex(of: "/") else { break }
            directory = String(directory[..<slash])
            if group.version == .v1, Self.isNotHierarchical(directory, kernel) { break }
        }
        self.first = first
        self.isUncertain = isUncertain
        // A controller that is on in a group is on in each group above.
        self.without = first?.directory == own ? [] : without
    }

    /// Returns true if the memory controller has been turned on at a level since the levels were opened. An operator
    /// who sets a limit turns the controller on, and no event tells that. Allocates nothing.
    func hasNewLevel() -> Bool {
        // By index: iterating an array may allocate.
        var index = 0
        while index < without.count {
            if without[index].read({ LimitChain.namesMemory($0) }) == true { return true }
            index += 1
        }
        return false
    }

    /// Returns true if the text of a `cgroup.controllers` names the memory controller.
    private static func namesMemory(_ text: Span<UInt8>) -> Bool {
        var start = 0
        for end in 0...text.count where end == text.count || text[end] <= KernelText.space {
            if KernelText.matches(text, start..<end, "memory") { return true }
            start = end + 1
        }
        return false
    }

    /// Returns true if a parent's limit is ignored, which version 1 before Linux 5.11 could do.
    private static func isNotHierarchical(_ directory: String, _ kernel: any Kernel) -> Bool {
        guard case .success(let text) = kernel.contents(of: directory + "/memory.use_hierarchy") else { return false }
        return text.first == UInt8(ascii: "0")
    }

    /// Reads all limits again. A limit above `total`, the machine's memory, counts as none. Returns false if a group is
    /// gone.
    func readLimits(total: Int) -> Bool {
        var allRead = true
        var next = first
        while let level = next {
            if !level.readLimits(total: total) { allRead = false }
            next = level.parent
        }
        return allRead
    }

    /// The level with the smallest limit; `nil` if there is no limit.
    var tightest: LimitLevel? {
        var best: LimitLevel?
        var next = first
        while let level = next {
            if level.isFinite, level.limit < best?.limit ?? KernelText.unlimited { best = level }
            next = level.parent
        }
        return best
    }

    /// The reason that a limit could not be read; `nil` if all were read.
    var failure: String? {
        var next = first
        while let level = next {
            if let failure = level.maximumFile.failure { return "\(level.maximumFile.path): \(failure)" }
            next = level.parent
        }
        return nil
    }
}
#endif
