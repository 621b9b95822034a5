/// A kind of load: requests beside the look-ups.
public struct LoadKind: Equatable, Sendable {
    /// Name on the command line.
    public let name: String
    /// Uploaders that go on for the whole time, each with one upload after another.
    let uploaders: Int
    /// Adds an export every 15 seconds.
    let exports: Bool
    /// Adds a slow leak.
    let leaks: Bool

    /// Every kind there is.
    public static let all = [
        LoadKind(name: "calm", uploaders: 0, exports: false, leaks: false),
        LoadKind(name: "burst-1", uploaders: 1, exports: true, leaks: false),
        LoadKind(name: "burst-2", uploaders: 2, exports: true, leaks: false),
        LoadKind(name: "burst-3", uploaders: 3, exports: true, leaks: false),
        LoadKind(name: "leak", uploaders: 1, exports: false, leaks: true),
    ]

    /// The load of that name; `nil` if there is none.
    public static func named(_ name: String) -> LoadKind? { all.first { $0.name == name } }
}
