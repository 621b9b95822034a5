/// A part of what is registered with a manager, under a name, with parts of its own: images, and among them thumbnails (C81).
///
/// What registers should be something that manages much: a cache, a pool, a store; not each object in it. A group changes nothing about when and in which order
/// its members are asked under pressure; it is what an operator names, and what is looked at together.
///
///     let images = manager.registerGroup("images")
///     let thumbnails = images.registerGroup("thumbnails")
///     thumbnails.register(cache)
///     manager.release(.mebibytes(64), from: .group("images"))
public final class PurgeableGroup: Sendable {
    /// Its name within the names of those it is part of.
    public let path: [String]
    private let manager: ResourceManager

    init(_ path: [String], _ manager: ResourceManager) {
        self.path = path
        self.manager = manager
    }

    /// Its names, joined by slashes: what `PurgeableSelection.group` takes.
    public var name: String { path.joined(separator: "/") }

    /// A group within this one.
    public func registerGroup(_ name: String) -> PurgeableGroup { PurgeableGroup(path + [name], manager) }

    /// As `ResourceManager.register(_:purgesOnBackground:tags:)`, as part of this group.
    @discardableResult
    public func register(_ purgeable: any Purgeable, purgesOnBackground: Bool = false, tags: [String] = []) -> Registration {
        manager.register(purgeable, PurgeablePlace(group: path, tags: tags, purgesOnBackground: purgesOnBackground))
    }

    /// Bytes held by all that is in it, groups within included. Asks each.
    public var heldBytes: Int { manager.heldBytes(in: .group(name)) }

    /// Has it let go of `target` bytes; as `ResourceManager.release(_:from:)`.
    @discardableResult
    public func release(_ target: Int = .max) -> ActionReport { manager.release(target, from: .group(name)) }
}

/// Where something registered belongs.
struct PurgeablePlace: Sendable, Hashable {
    var group: [String] = []
    var tags: [String] = []
    var purgesOnBackground = false
}

/// Some of what is registered with a manager.
public struct PurgeableSelection: Sendable, Hashable {
    private var group: [String] = []
    private var name: String?
    private var tag: String?
    private var highestCost = RebuildCost.precious

    /// Everything.
    public static let all = PurgeableSelection()

    /// What is in a group, groups within included. Names are joined by slashes.
    public static func group(_ name: String) -> PurgeableSelection {
        var selection = PurgeableSelection()
        selection.group = name.split(separator: "/").map(String.init)
        return selection
    }

    /// What was registered with that tag. Not to be taken for the tags of entries in a cache.
    public static func tag(_ tag: String) -> PurgeableSelection {
        var selection = PurgeableSelection()
        selection.tag = tag
        return selection
    }

    /// What has that name.
    public static func named(_ name: String) -> PurgeableSelection {
        var selection = PurgeableSelection()
        selection.name = name
        return selection
    }

    /// Of these, what costs no more than that to make again.
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
    /// A named part of what is registered. Groups of one name are the same part.
    public func registerGroup(_ name: String) -> PurgeableGroup { PurgeableGroup([name], self) }

    /// Has what is selected let go of `target` bytes at once, whatever the level: volatile memory first, then what is cheapest to rebuild. For an operator, and
    /// for code that knows that it is about to need much. What isn't released under pressure is asked only if it is selected by its name.
    ///
    /// Blocks until it is done, on the calling thread; works whether or not the manager runs. The report is also among `reports`. A holder that is being asked by
    /// somebody else at that moment is left out, and named as overrun.
    @discardableResult
    public func release(_ target: Int = .max, from selection: PurgeableSelection = .all) -> ActionReport {
        let report = parts.selectedRelease(.operator).run(parts.purgeables.snapshot.filter(selection.mayAsk), ByteCount(target))
        parts.report(report)
        return report
    }

    /// The same on a thread of the library's own.
    @discardableResult
    public func release(_ target: Int = .max, from selection: PurgeableSelection = .all) async -> ActionReport {
        await withCheckedContinuation { done in
            parts.threads.run { () -> Void in
                let report: ActionReport = self.release(target, from: selection)
                done.resume(returning: report)
            }
        }
    }

    /// Bytes held by what is selected. Asks each.
    public func heldBytes(in selection: PurgeableSelection = .all) -> Int {
        // Saturating: a purgeable may say anything.
        parts.purgeables.snapshot.filter(selection.includes).reduce(ByteCount.zero) { $0 + ByteCount($1.purgeable.heldBytes) }.bytes
    }
}
