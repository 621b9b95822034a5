/// A named group of registered purgeables, which may contain further groups: images, and among them thumbnails
/// (C81).
///
/// Register objects that manage much memory, such as a cache, a pool or a store, not each object inside. A group
/// does not change when and in which order its members are asked under pressure. An operator can name a group, and
/// the group's memory is reported as a whole.
///
///     let images = manager.registerGroup("images")
///     let thumbnails = images.registerGroup("thumbnails")
///     thumbnails.register(cache)
///     manager.release(.mebibytes(64), from: .group("images"))
public final class PurgeableGroup: Sendable {
    /// Names of the enclosing groups, then the name of this group.
    public let path: [String]
    private let manager: ResourceManager

    init(_ path: [String], _ manager: ResourceManager) {
        self.path = path
        self.manager = manager
    }

    /// The path joined by slashes, as `PurgeableSelection.group` takes.
    public var name: String { path.joined(separator: "/") }

    /// Returns a group within this one.
    public func registerGroup(_ name: String) -> PurgeableGroup { PurgeableGroup(path + [name], manager) }

    /// Registers `purgeable` in this group, like `ResourceManager.register(_:purgesOnBackground:tags:)`.
    @discardableResult
    public func register(_ purgeable: any Purgeable, purgesOnBackground: Bool = false, tags: [String] = []) -> Registration {
        manager.register(purgeable, PurgeablePlace(group: path, tags: tags, purgesOnBackground: purgesOnBackground))
    }

    /// Bytes held by all members, nested groups included. Asks each member.
    public var heldBytes: Int { manager.heldBytes(in: .group(name)) }

    /// Releases `target` bytes from the members, like `ResourceManager.release(_:from:)`.
    @discardableResult
    public func release(_ target: Int = .max) -> ActionReport { manager.release(target, from: .group(name)) }
}

/// The group, tags and options of a registered purgeable.
struct PurgeablePlace: Sendable, Hashable {
    var group: [String] = []
    var tags: [String] = []
    var purgesOnBackground = false
}

/// A selection of the purgeables registered with a manager.
public struct PurgeableSelection: Sendable, Hashable {
    private var group: [String] = []
    private var name: String?
    private var tag: String?
    private var highestCost = RebuildCost.precious

    /// Selects all purgeables.
    public static let all = PurgeableSelection()

    /// Selects the members of a group, nested groups included. The names are joined by slashes.
    public static func group(_ name: String) -> PurgeableSelection {
        var selection = PurgeableSelection()
        selection.group = name.split(separator: "/").map(String.init)
        return selection
    }

    /// Selects the purgeables registered with `tag`. Not related to the tags of entries in a cache.
    public static func tag(_ tag: String) -> PurgeableSelection {
        var selection = PurgeableSelection()
        selection.tag = tag
        return selection
    }

    /// Selects the purgeables named `name`.
    public static func named(_ name: String) -> PurgeableSelection {
        var selection = PurgeableSelection()
        selection.name = name
        return selection
    }

    /// Restricts the selection to purgeables that cost no more than `cost` to rebuild.
    public func upTo(_ cost: RebuildCost) -> PurgeableSelection {
        var selection = self
        selection.highestCost = min(cost, highestCost)
        return selection
    }

    func mayAsk(_ entry: PurgeableRegistry.Entry) -> Bool { includes(entry) && (entry.isReleasable || name != nil) }

    func includes(_ entry: PurgeableRegistry.Entry) -> Bool {
        entry.rebuildCost <= highestCost && entry.place.group.starts(with: group) && (name.map { entry.name == $0 } ?? true)
            && (tag.map { entry.place.tags.contains($0) } ?? true)
    }
}

extension ResourceManager {
    /// Returns a named group of registered purgeables. Groups of the same name are the same group.
    public func registerGroup(_ name: String) -> PurgeableGroup { PurgeableGroup([name], self) }

    /// Releases `target` bytes from the selection at once, independent of the level: volatile memory first, then
    /// the memory that is cheapest to rebuild. For an operator, and for code that is about to need much memory. A
    /// purgeable that is not released under pressure is asked only if selected by name.
    ///
    /// Blocks the calling thread until the release is done. Works even if the manager does not run. The report is
    /// also among `reports`. A purgeable inside a call from another thread is skipped, and named as overrun.
    @discardableResult
    public func release(_ target: Int = .max, from selection: PurgeableSelection = .all) -> ActionReport {
        let report = parts.selectedRelease(.operator).run(parts.purgeables.snapshot.filter(selection.mayAsk), ByteCount(target))
        parts.report(report)
        return report
    }

    /// Releases like the synchronous method, on a thread of the library.
    @discardableResult
    public func release(_ target: Int = .max, from selection: PurgeableSelection = .all) async -> ActionReport {
        await withCheckedContinuation { done in
            parts.threads.run { () -> Void in
                let report: ActionReport = self.release(target, from: selection)
                done.resume(returning: report)
            }
        }
    }

    /// Returns the bytes held by the selection. Asks each purgeable.
    public func heldBytes(in selection: PurgeableSelection = .all) -> Int {
        // Saturating: a purgeable may return any number.
        parts.purgeables.snapshot.filter(selection.includes).reduce(ByteCount.zero) { $0 + ByteCount($1.purgeable.heldBytes) }.bytes
    }
}
