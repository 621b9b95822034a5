#if canImport(Glibc) && !PLIMSOLL_INERT
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

    /// Opens the levels of `group` whose memory controller is on. A level need not have a limit.
    init(_ group: ControlGroup, _ kernel: any Kernel, _ buffer: TextBuffer) {
        guard case .directory(let own, let top) = group.memory else {
            first = nil
            isUncertain = false
            return
        }
        var (first, last): (LimitLevel?, LimitLevel?)
        var isUncertain = false
        var directory = own
        while true {
            let level = LimitLevel(directory, group.version, kernel, buffer)
            // The top of the hierarchy itself has no limits. A group below one with the controller on may have it off.
            if level.maximumFile.open() {
                first = first ?? level
                last?.parent = level
                last = level
            } else if level.maximumFile.failure?.isLasting != true {
                isUncertain = true
            }
            guard directory.utf8.count > top.utf8.count, let slash = directory.lastIndex(of: "/") else { break }
            directory = String(directory[..<slash])
            if group.version == .v1, Self.isNotHierarchical(directory, kernel) { break }
        }
        self.first = first
        self.isUncertain = isUncertain
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
