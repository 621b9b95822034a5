// swift-tools-version: 6.2
import PackageDescription

/// Tests of the library's parts behind traits, against real servers. A package of its own, because the first build of
/// other packages takes minutes. `PLIMSOLL_ALL=1` adds the parts that `make test` leaves to `make test-all`: the tests
/// of AsyncHTTPClient and of gRPC over HTTP/2, and the web demo.
let rules: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
]

// Minutes of the build are for these alone: AsyncHTTPClient comes with BoringSSL, NIOSSL and HTTP/2, gRPC over HTTP/2
// with X.509 and a second BoringSSL, and the web demo with ArgumentParser.
let hasAll = Context.environment["PLIMSOLL_ALL"] == "1"

func plimsoll(_ name: String) -> Target.Dependency { .product(name: name, package: "plimsoll") }

let package = Package(
    name: "plimsoll-ecosystem",
    dependencies: [
        .package(
            name: "plimsoll", path: "../..",
            traits: ["Hummingbird", "GRPC", hasAll ? "AsyncHTTPClient" : "NIO", "GRDB", "PostgreSQL", "Spill", "Tracing"]),
        .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1"),
        .package(url: "https://github.com/grpc/grpc-swift-2", from: "2.4.3"),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-extras", from: "1.35.2"),
        .package(url: "https://github.com/apple/swift-http-types", from: "1.8.0"),
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-metrics", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-distributed-tracing", from: "1.7.3"),
    ],
    targets: [
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
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"), .product(name: "Logging", package: "swift-log"),
                .product(name: "Metrics", package: "swift-metrics"), .product(name: "MetricsTestKit", package: "swift-metrics"), "TestServers", "Pod",
                .product(name: "NIOEmbedded", package: "swift-nio"), .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"), .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOHTTPTypes", package: "swift-nio-extras"), .product(name: "NIOHTTPTypesHTTP1", package: "swift-nio-extras"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
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
                .product(name: "NIOCore", package: "swift-nio"), .product(name: "NIOPosix", package: "swift-nio"), "TestServers",
            ] + (hasAll ? [.product(name: "AsyncHTTPClient", package: "async-http-client")] : []),
            swiftSettings: rules + (hasAll ? [.define("ASYNC_HTTP_CLIENT")] : [])),
        .testTarget(
            name: "GRPCTests",
            dependencies: [
                plimsoll("Plimsoll"), plimsoll("PlimsollLifecycle"), plimsoll("PlimsollService"), plimsoll("PlimsollGRPC"),
                plimsoll("PlimsollTesting"),
                .product(name: "GRPCCore", package: "grpc-swift-2"), .product(name: "GRPCInProcessTransport", package: "grpc-swift-2"),
                "TestServers",
            ] + (hasAll ? [.product(name: "GRPCNIOTransportHTTP2Posix", package: "grpc-swift-nio-transport")] : []),
            swiftSettings: rules + (hasAll ? [.define("HTTP2")] : [])),
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

if hasAll {
    package.dependencies += [
        .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
        .package(url: "https://github.com/grpc/grpc-swift-nio-transport", from: "2.9.2"),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
    ]
    package.targets.append(
        .executableTarget(
            name: "WebDemo",
            dependencies: [
                plimsoll("Plimsoll"), plimsoll("PlimsollLifecycle"), plimsoll("PlimsollLinux"), plimsoll("PlimsollService"),
                plimsoll("PlimsollHummingbird"),
                .product(name: "Hummingbird", package: "hummingbird"), .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "Logging", package: "swift-log"), .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: rules))
}
