/// Tells a removal listener why an entry leaves where `RemovalReason` doesn't: memory that is short and a tag whose entries are no longer true both purge.
///
/// Whoever keeps what a cache lets go of keeps the first and must forget the second.
package enum CacheInvalidation {
    /// Whether this thread takes entries out because of what they say, not for their bytes.
    @TaskLocal package static var isRunning = false
}
