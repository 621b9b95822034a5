/// An object whose content can be discarded: `NSDiscardableContent`, which Foundation lacks on Linux.
///
/// `PurgeableData` conforms. Conform your own classes that can drop their content and report the loss, such as a
/// decoded image whose file is kept.
public protocol DiscardableContent: AnyObject, Sendable {
    /// Keeps the content until `endContentAccess()`. Accesses nest.
    ///
    /// - Returns: true if the content is there. If false, there is no access to end.
    func beginContentAccess() -> Bool

    /// Ends an access that has begun.
    func endContentAccess()

    /// Discards the content unless an access is in progress.
    func discardContentIfPossible()

    /// Returns true if the content is gone.
    func isContentDiscarded() -> Bool
}
