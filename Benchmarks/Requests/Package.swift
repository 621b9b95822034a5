// swift-tools-version: 6.2
import PackageDescription

/// Memory by request: a web service with budgets, linked with jemalloc. A separate package, because linking needs
/// libjemalloc-dev.
let rules: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
]

func plimsoll(_ name: String) -> Target.Dependency { .product(name: name, package: "plimsoll") }

let package = Package(
    name: "plimsoll-requests",
    products: [
        .executable(name: "request-bench", targets: ["RequestBench"]),
        .executable(name: "web-server", targets: ["WebServer"]),
    ],
    dependencies: [
        .package(name: "plimsoll", path: "../..", traits: ["Hummingbird"]),
        .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
    ],
    targets: [
        .executableTarget(
            name: "RequestBench",
            dependencies: [
                plimsoll("Plimsoll"), plimsoll("PlimsollLinux"), plimsoll("PlimsollJemalloc"),
                plimsoll("PlimsollHummingbird"), plimsoll("PlimsollService"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: rules),
        // A server that does not use the library.
        .executableTarget(
            name: "WebServer",
            dependencies: [
                .product(name: "Hummingbird", package: "hummingbird"), .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: rules),
    ],
    swiftLanguageModes: [.v6]
)
