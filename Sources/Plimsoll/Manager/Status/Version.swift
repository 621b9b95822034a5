/// The version of the package.
package enum Version {
    /// The version under which the sources are released. The only place that states the number.
    package static let current = "0.2.0"
}
