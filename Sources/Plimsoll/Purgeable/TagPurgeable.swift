/// A purgeable whose entries carry tags, so that all entries of one tenant, account or credential can be purged at
/// once (C67).
///
/// `PurgeableCache` and `VolatileCache` conform. Both methods may be called from any thread, also while `release`
/// runs.
package protocol TagPurgeable: AnyObject, Sendable {
    /// The name shown in reports.
    var name: String { get }

    /// Removes every entry with that tag. Values with that tag that are being loaded now are not kept.
    ///
    /// - Returns: the number of entries removed.
    @discardableResult
    func purge(tag: String) -> Int

    /// Returns the number of entries with that tag.
    func count(tag: String) -> Int
}
