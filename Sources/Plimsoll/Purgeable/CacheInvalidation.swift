/// Tells a removal listener why an entry leaves where `RemovalReason` does not: both memory pressure and
/// invalidation by tag purge entries.
///
/// A second-level store keeps entries purged under pressure, and must forget entries that are no longer true.
package enum CacheInvalidation {
    /// True if this thread removes entries because their content is invalid, not to release their bytes.
    @TaskLocal package static var isRunning = false
}
