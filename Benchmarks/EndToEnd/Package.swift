// swift-tools-version: 6.2
import PackageDescription

/// One real service, with and without the library, under a real limit. A separate package, because the first build of a
/// web framework takes minutes.
let rules: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
]

func plimsoll(_ name: String) -> Target.Dependency { .product(name: name, package: "plimsoll") }

let package = Package(
    name: "plimsoll-end-to-end",
    products: [.executable(name: "e2e-bench", targets: ["EndToEnd"])],
    dependencies: [
        .package(name: "plimsoll", path: "../..", traits: ["Hummingbird"]),
        .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
    ],
    targets: [
        // The load, the runs and the report, without the framework, so that the tests build in seconds.
        .target(name: "Comparing", dependencies: ["CEpoll"], swiftSettings: rules),
        .target(name: "CEpoll"),
        // The service, and the commands.
        .executableTarget(
            name: "EndToEnd",
            dependencies: [
                "Comparing", plimsoll("Plimsoll"), plimsoll("PlimsollLifecycle"), plimsoll("PlimsollLinux"),
                plimsoll("PlimsollService"), plimsoll("PlimsollHummingbird"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: rules),
        .testTarget(name: "ComparingTests", dependencies: ["Comparing"], swiftSettings: rules),
    ],
    swiftLanguageModes: [.v6]
)
