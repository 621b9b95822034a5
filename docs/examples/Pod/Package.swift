// swift-tools-version: 6.2
import PackageDescription

/// The program of docs/operations/Dockerfile, as a package of its own: what a service depends on.
let package = Package(
    name: "pod",
    products: [.executable(name: "pod", targets: ["Pod"])],
    dependencies: [
        .package(name: "plimsoll", path: "../../..", traits: ["Hummingbird"]),
        .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
    ],
    targets: [
        .executableTarget(
            name: "Pod",
            dependencies: [
                .product(name: "Plimsoll", package: "plimsoll"),
                .product(name: "PlimsollLifecycle", package: "plimsoll"),
                .product(name: "PlimsollLinux", package: "plimsoll"),
                .product(name: "PlimsollService", package: "plimsoll"),
                .product(name: "PlimsollHummingbird", package: "plimsoll"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
                .product(name: "Logging", package: "swift-log"),
            ], path: ".", sources: ["Pod.swift"])
    ]
)
