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
    public func register(_ purgeable: any Purgeable, purgesOnBackground: Bool = false, tags: [String] = [])
        -> Registration
    {
        manager.register(purgeable, PurgeablePlace(group: path, tags: tags, purgesOnBackground: purgesOnBackground))
    }

    /// Bytes held by all members, nested groups included. Asks each member.
    public var heldBytes: Int { manager.heldBytes(in: .group(name)) }

    /// Releases `target` bytes from the members, like `ResourceManager.release(_:from:)`.
    @discardableResult
    public func release(_ target: Int = .max) -> ActionReport { manager.release(target, from: .group(name)) }
}
