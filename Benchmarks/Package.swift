// swift-tools-version: 6.2
import PackageDescription

// A separate package: the tools for measuring never reach users of the library, and calls here cross a module boundary
// as the calls of users do.

let rules: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
]

let package = Package(
    name: "plimsoll-benchmarks",
    products: [.executable(name: "cache-bench", targets: ["CacheBench"])],
    dependencies: [
        .package(name: "plimsoll", path: ".."),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        // No traits: the package's interposers of malloc and of the runtime would be part of the measurement.
        .package(url: "https://github.com/ordo-one/benchmark", from: "1.38.1", traits: []),
    ],
    targets: [
        // `Shared` holds links to files of the demos and of `Process`, whose target is in the package above.
        .executableTarget(
            name: "CacheBench",
            dependencies: [
                .product(name: "Plimsoll", package: "plimsoll"),
                .product(name: "PlimsollLinux", package: "plimsoll"),
                .product(name: "PlimsollTesting", package: "plimsoll"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "CacheBench",
            swiftSettings: rules),
        .testTarget(
            name: "CacheBenchTests", dependencies: ["CacheBench"], path: "Tests/CacheBenchTests", swiftSettings: rules),

        // The plug-in of the package looks for targets in a directory named Benchmarks, which is this one.
        .executableTarget(
            name: "CacheMicro",
            dependencies: [
                .product(name: "Plimsoll", package: "plimsoll"), .product(name: "Benchmark", package: "benchmark"),
            ],
            path: "CacheMicro",
            swiftSettings: rules,
            plugins: [.plugin(name: "BenchmarkPlugin", package: "benchmark")]),
    ],
    swiftLanguageModes: [.v6]
)
