/// Where state is kept across restarts, by name.
public protocol StateStore: Sendable {
    /// Keeps `bytes` under `name` in place of what was there. Once it has returned they outlive the process.
    func write(_ name: String, _ bytes: [UInt8]) throws
    /// What was kept last under `name`; `nil` if nothing was.
    func read(_ name: String) throws -> [UInt8]?
    /// Forgets what is kept under `name`.
    func remove(_ name: String) throws
}
