// swift-tools-version: 6.2
import PackageDescription

/// What the library has behind traits, used as its users use it: tests against real servers, and the web demo. A package of its own, because the first build of
/// what it needs takes minutes.
let rules: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
]

// HTTP/2 for gRPC comes with X.509 and a second BoringSSL, a quarter of the build.
let hasHTTP2 = Context.environment["PLIMSOLL_ALL"] == "1"

func plimsoll(_ name: String) -> Target.Dependency { .product(name: name, package: "plimsoll") }

let package = Package(
    name: "plimsoll-ecosystem",
    dependencies: [
        .package(name: "plimsoll", path: "../..", traits: ["Hummingbird", "GRPC", "AsyncHTTPClient", "GRDB", "PostgreSQL", "Spill", "Tracing"]),
        .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1"),
        .package(url: "https://github.com/grpc/grpc-swift-2", from: "2.4.3"),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-extras", from: "1.35.2"),
        .package(url: "https://github.com/apple/swift-http-types", from: "1.8.0"),
        .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-metrics", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-distributed-tracing", from: "1.7.3"),
    ] + (hasHTTP2 ? [.package(url: "https://github.com/grpc/grpc-swift-nio-transport", from: "2.9.2")] : []),
    targets: [
        .executableTarget(
            name: "WebDemo",
            dependencies: [
                plimsoll("Plimsoll"), plimsoll("PlimsollLifecycle"), plimsoll("PlimsollLinux"), plimsoll("PlimsollService"),
                plimsoll("PlimsollHummingbird"),
                .product(name: "Hummingbird", package: "hummingbird"), .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "Logging", package: "swift-log"), .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: rules),
        // The program of README.md, built as an application builds it: with the language rules of a new package. The source is a link to docs/examples.
        .executableTarget(
            name: "Quickstart",
            dependencies: [
                plimsoll("Plimsoll"), plimsoll("PlimsollLinux"), plimsoll("PlimsollService"), plimsoll("PlimsollHummingbird"),
                .product(name: "Hummingbird", package: "hummingbird"),
            ]),
        .testTarget(
            name: "WebTests",
            dependencies: [
                "Quickstart",
                plimsoll("Plimsoll"), plimsoll("PlimsollLifecycle"), plimsoll("PlimsollService"), plimsoll("PlimsollHummingbird"),
                plimsoll("PlimsollTesting"),
                .product(name: "Hummingbird", package: "hummingbird"), .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "HummingbirdTesting", package: "hummingbird"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"), .product(name: "Logging", package: "swift-log"),
                .product(name: "Metrics", package: "swift-metrics"), .product(name: "MetricsTestKit", package: "swift-metrics"), "TestServers", "Pod",
                .product(name: "NIOEmbedded", package: "swift-nio"), .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTPTypes", package: "swift-nio-extras"), .product(name: "HTTPTypes", package: "swift-http-types"),
            ],
            swiftSettings: rules),
        // The program of docs/operations/Dockerfile. The source is a link to docs/examples.
        .executableTarget(
            name: "Pod",
            dependencies: [
                plimsoll("Plimsoll"), plimsoll("PlimsollLifecycle"), plimsoll("PlimsollLinux"), plimsoll("PlimsollService"),
                plimsoll("PlimsollHummingbird"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"), .product(name: "Logging", package: "swift-log"),
            ]),
        .testTarget(
            name: "TracingTests",
            dependencies: [
                plimsoll("Plimsoll"), plimsoll("PlimsollLifecycle"), plimsoll("PlimsollService"), plimsoll("PlimsollTesting"),
                .product(name: "Tracing", package: "swift-distributed-tracing"),
                .product(name: "InMemoryTracing", package: "swift-distributed-tracing"),
                .product(name: "Logging", package: "swift-log"), "TestServers",
            ],
            swiftSettings: rules),
        // Servers that a test starts and stops: real ones, one that never answers, one that lies.
        .target(name: "TestServers", path: "Tests/TestServers", swiftSettings: rules),
        .testTarget(
            name: "NIOTests",
            dependencies: [
                plimsoll("Plimsoll"), plimsoll("PlimsollLifecycle"), plimsoll("PlimsollNIO"), plimsoll("PlimsollTesting"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"), .product(name: "AsyncHTTPClient", package: "async-http-client"), "TestServers",
            ],
            swiftSettings: rules),
        .testTarget(
            name: "GRPCTests",
            dependencies: [
                plimsoll("Plimsoll"), plimsoll("PlimsollLifecycle"), plimsoll("PlimsollService"), plimsoll("PlimsollGRPC"),
                plimsoll("PlimsollTesting"),
                .product(name: "GRPCCore", package: "grpc-swift-2"), .product(name: "GRPCInProcessTransport", package: "grpc-swift-2"),
                "TestServers",
            ] + (hasHTTP2 ? [.product(name: "GRPCNIOTransportHTTP2Posix", package: "grpc-swift-nio-transport")] : []),
            swiftSettings: rules + (hasHTTP2 ? [.define("HTTP2")] : [])),
        .testTarget(
            name: "DatabaseTests",
            dependencies: [
                plimsoll("Plimsoll"), plimsoll("PlimsollLifecycle"), plimsoll("PlimsollGRDB"), plimsoll("PlimsollPostgreSQL"),
                plimsoll("PlimsollTesting"),
                .product(name: "GRDB", package: "GRDB.swift"), "TestServers",
            ],
            swiftSettings: rules),
        .testTarget(
            name: "SpillTests",
            dependencies: [
                plimsoll("Plimsoll"), plimsoll("PlimsollLifecycle"), plimsoll("PlimsollSpill"), plimsoll("PlimsollTesting"), "TestServers",
            ],
            swiftSettings: rules),
    ],
    swiftLanguageModes: [.v6]
)
