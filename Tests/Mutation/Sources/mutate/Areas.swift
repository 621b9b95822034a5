/// The folders whose decisions are mutated, and the tests that should notice.
struct Area: Sendable {
    /// Folder below `Sources`.
    let folder: String
    /// Target of the tests. A folder of the same name in the target has the tests of this folder.
    let tests: String

    var room: String { folder.split(separator: "/").dropFirst().joined(separator: "/") }

    static let all: [Area] = [
        Area("Plimsoll/Pressure", "PlimsollTests"),
        Area("Plimsoll/Purgeable", "PlimsollTests"),
        Area("Plimsoll/Manager", "PlimsollTests"),
        Area("Plimsoll/Tasks", "PlimsollTests"),
        Area("Plimsoll/Concurrency", "PlimsollTests"),
        Area("Plimsoll/Caches", "PlimsollTests"),
        Area("PlimsollLifecycle/Lifecycle", "PlimsollLifecycleTests"),
        Area("PlimsollLifecycle/Quiesce", "PlimsollLifecycleTests"),
        Area("PlimsollLifecycle/Exclusive", "PlimsollLifecycleTests"),
        Area("PlimsollLifecycle/State", "PlimsollLifecycleTests"),
        Area("PlimsollLifecycle/Environment", "PlimsollLifecycleTests"),
        Area("PlimsollLinux/Cgroup", "PlimsollLinuxTests"),
        Area("PlimsollSupervisor/Policy", "PlimsollSupervisorTests"),
    ]

    private init(_ folder: String, _ tests: String) { (self.folder, self.tests) = (folder, tests) }

    /// Tests that read the sources of the repository: these tests would fail in a copy with mutants.
    static let readers = [
        "TidyTests", "LayeringTests", "PublicSurfaceTests", "ContractTests", "DocumentationTests", "ReviewTests",
        "ArticleTests", "LifecycleArticleTests", "OperationsTests", "ConsumerTests", "PlatformTests",
    ]
}
