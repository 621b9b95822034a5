/// A descriptor that a service has handed over. Closed soon after the last reference goes, on a thread that may hang.
package final class KeptDescriptor: Sendable {
    package let file: Int32
    /// The unit to blame for a slow close.
    private let owner: String

    init(_ file: Int32, of owner: String = "") { (self.file, self.owner) = (file, owner) }

    deinit { ForeignCloser.shared.close(CollectionOfOne(file), of: owner) }
}
