/// An object that can do without its content: `NSDiscardableContent`, which Foundation lacks on Linux.
///
/// `PurgeableData` is one. Conform a class of your own that can drop what it holds and be asked whether it has: a decoded image beside its file.
public protocol DiscardableContent: AnyObject, Sendable {
    /// Keeps the content until `endContentAccess()`. Accesses nest.
    ///
    /// - Returns: whether the content is there. If not there is nothing to end.
    func beginContentAccess() -> Bool

    /// Ends an access that has begun.
    func endContentAccess()

    /// Lets go of the content unless somebody has access to it.
    func discardContentIfPossible()

    /// Whether the content is gone.
    func isContentDiscarded() -> Bool
}
