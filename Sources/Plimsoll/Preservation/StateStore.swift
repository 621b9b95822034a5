/// Where state is kept by name.
public protocol StateStore: Sendable {
    /// Keeps `bytes` under `name`, replacing what was there: after a crash at any instant there is the old or the new.
    func write(_ name: String, _ bytes: [UInt8]) throws
    /// What is kept under `name`; `nil` if nothing is.
    func read(_ name: String) throws -> [UInt8]?
    /// Forgets what is kept under `name`.
    func remove(_ name: String) throws
}
