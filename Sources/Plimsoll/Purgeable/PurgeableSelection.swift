/// The group, tags and options of a registered purgeable.
package struct PurgeablePlace: Sendable, Hashable {
    var group: [String] = []
    var tags: [String] = []
    var purgesOnBackground = false

    package init(group: [String] = [], tags: [String] = [], purgesOnBackground: Bool = false) {
        self.group = group
        self.tags = tags
        self.purgesOnBackground = purgesOnBackground
    }
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
        entry.rebuildCost <= highestCost && entry.place.group.starts(with: group)
            && (name.map { entry.name == $0 } ?? true)
            && (tag.map { entry.place.tags.contains($0) } ?? true)
    }
}
