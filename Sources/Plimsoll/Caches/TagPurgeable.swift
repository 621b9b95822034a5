/// A holder whose entries bear tags, so that all of one tenant, account or credential can go at once (C67).
///
/// `PurgeableCache` and `VolatileCache` are. Both may be called from any thread, also while `release` runs.
public protocol TagPurgeable: AnyObject, Sendable {
    /// How reports name it.
    var name: String { get }

    /// Takes out everything with that tag, and keeps nothing of what is being loaded under it now.
    ///
    /// - Returns: number of entries taken out.
    @discardableResult
    func purge(tag: String) -> Int

    /// Number of entries with that tag.
    func count(tag: String) -> Int
}
