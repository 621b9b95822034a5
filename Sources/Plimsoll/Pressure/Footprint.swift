/// Memory of a process and its group at one instant.
public struct Footprint: Sendable, Hashable, Codable {
    /// Resident memory of this process (`/proc/self/statm`).
    public var resident: ByteCount
    /// Usage of the group that has the tightest limit; zero if unknown.
    public var usage: ByteCount

    /// Creates a footprint of both numbers.
    public init(resident: ByteCount = .zero, usage: ByteCount = .zero) {
        self.resident = resident
        self.usage = usage
    }
}
