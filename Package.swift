// swift-tools-version: 6.2
import PackageDescription

/// Language rules of every target: whole Swift 6 mode, imports stay private, existentials are written as such.
let rules: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
]

let package = Package(
    name: "plimsoll",
    // For `Synchronization`. On a Mac the library compiles and has no effect: docs/DECISIONS.md.
    platforms: [.macOS(.v15)],
    products: [
        .library(name: "Plimsoll", targets: ["Plimsoll"]),
        .library(name: "PlimsollLifecycle", targets: ["PlimsollLifecycle"]),
        .library(name: "PlimsollLinux", targets: ["PlimsollLinux"]),
        .library(name: "PlimsollFoundation", targets: ["PlimsollFoundation"]),
        .library(name: "PlimsollFoundationNetworking", targets: ["PlimsollFoundationNetworking"]),
        .library(name: "PlimsollJemalloc", targets: ["PlimsollJemalloc"]),
        .library(name: "PlimsollHeap", targets: ["PlimsollHeap"]),
        .library(name: "PlimsollService", targets: ["PlimsollService"]),
        .library(name: "PlimsollSupervisor", targets: ["PlimsollSupervisor"]),
        .library(name: "PlimsollTesting", targets: ["PlimsollTesting"]),
        .library(name: "PlimsollHummingbird", targets: ["PlimsollHummingbird"]),
        .library(name: "PlimsollGRPC", targets: ["PlimsollGRPC"]),
        .library(name: "PlimsollNIO", targets: ["PlimsollNIO"]),
        .library(name: "PlimsollGRDB", targets: ["PlimsollGRDB"]),
        .library(name: "PlimsollPostgreSQL", targets: ["PlimsollPostgreSQL"]),
        .library(name: "PlimsollSpill", targets: ["PlimsollSpill"]),
        .executable(name: "plimsoll", targets: ["PlimsollCLI"]),
    ],
    traits: [
        // What a trait names is fetched and built only for who asks for it: `.package(…, traits: ["Hummingbird"])`. Without it the product of that name is empty.
        // The default traits are for this package's own build and for applications. `.package(…, traits: [])` resolves no other package at all, and has
        // Plimsoll, PlimsollLifecycle, PlimsollLinux, PlimsollFoundation and PlimsollTesting. SwiftPM leaves a package out if each use of it, in tests and programs
        // as well, is behind a trait that is off.
        .default(enabledTraits: ["Service", "Supervisor", "CLI"]),
        .trait(
            name: "Service", description: "PlimsollService: a service of a ServiceGroup, with log, metrics and settings"
        ),
        .trait(name: "Supervisor", description: "PlimsollSupervisor: runs services under one limit; reads YAML"),
        .trait(name: "CLI", description: "the command plimsoll", enabledTraits: ["Service", "Supervisor"]),
        .trait(
            name: "Tracing",
            description: "PlimsollService: spans of swift-distributed-tracing for what is done about memory",
            enabledTraits: ["Service"]),
        .trait(
            name: "Hummingbird", description: "PlimsollHummingbird: load shedding, health and status pages",
            enabledTraits: ["Service"]),
        .trait(
            name: "GRPC", description: "PlimsollGRPC: load shedding and bounded request streams for gRPC Swift 2",
            enabledTraits: ["Service"]),
        .trait(name: "NIO", description: "PlimsollNIO: ByteBuffer in volatile memory, bounds for bodies"),
        .trait(
            name: "AsyncHTTPClient",
            description:
                "PlimsollNIO: a client whose connections become fewer as memory does; builds a TLS library with it",
            enabledTraits: ["NIO"]),
        .trait(
            name: "GRDB",
            description: "PlimsollGRDB: SQLite's memory gives way; hand-over of tasks through a database file"),
        .trait(name: "PostgreSQL", description: "PlimsollPostgreSQL: hand-over of tasks through a server, by libpq"),
        .trait(
            name: "Spill",
            description:
                "PlimsollSpill: what is purged goes to memcached or Redis, by libmemcached, hiredis and OpenSSL"),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/jpsim/Yams", from: "6.2.2"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-metrics", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-configuration", from: "1.4.0"),
        // Of traits.
        .package(url: "https://github.com/apple/swift-distributed-tracing", from: "1.7.3"),
        .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1"),
        .package(url: "https://github.com/grpc/grpc-swift-2", from: "2.4.3"),
        .package(url: "https://github.com/apple/swift-http-types", from: "1.8.0", traits: []),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-extras", from: "1.35.2"),
        .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
    ],
    targets: [
        // What pressure means and what to do about it. No Foundation, no Glibc, no package.
        .target(name: "Plimsoll", dependencies: ["CPlimsollMemory", "CPlimsollProcess"], swiftSettings: rules),
        .target(name: "CPlimsollMemory"),
        .target(name: "CPlimsollProcess"),

        // States, scenes, quiescing, preservation, exclusive resources, secrets, environment and hand-over. No package.
        .target(
            name: "PlimsollLifecycle", dependencies: ["Plimsoll", "CPlimsollMemory", "CPlimsollProcess"],
            swiftSettings: rules),

        // Event sources: the kernel's files and events.
        .target(
            name: "PlimsollLinux", dependencies: ["Plimsoll", "PlimsollLifecycle", "CPlimsollLinux"],
            swiftSettings: rules),
        .target(name: "CPlimsollLinux"),

        // NSCache's calls, Foundation's types in volatile memory.
        .target(name: "PlimsollFoundation", dependencies: ["Plimsoll", "PlimsollLifecycle"], swiftSettings: rules),
        // URLCache. Apart, as FoundationNetworking is apart: it needs libcurl, and two dozen libraries behind that, to start.
        .target(name: "PlimsollFoundationNetworking", dependencies: ["Plimsoll"], swiftSettings: rules),
        // jemalloc as the process's allocator. It compiles where the library is absent; programs that use it are linked where it is installed.
        // No `pkgConfig:`, which would have SwiftPM warn everybody who does without it (swift-package-manager #10549).
        .target(
            name: "PlimsollJemalloc", dependencies: ["Plimsoll", "CPlimsollMemory", "CPlimsollJemalloc", "CJemalloc"],
            swiftSettings: rules),
        .target(name: "CPlimsollJemalloc", dependencies: ["CPlimsollMemory"]),
        .systemLibrary(name: "CJemalloc", providers: [.apt(["libjemalloc-dev"]), .yum(["jemalloc-devel"])]),

        // A census of the heap by Swift type. No package, and nothing of the core.
        .target(name: "PlimsollHeap", dependencies: ["CPlimsollHeap", "CPlimsollMemory"], swiftSettings: rules),
        .target(name: "CPlimsollHeap", dependencies: ["CPlimsollMemory"]),

        // Suspend and terminate across services: the one process that others are run by.
        .target(
            name: "PlimsollSupervisor",
            dependencies: [
                "Plimsoll", "PlimsollLinux", "CPlimsollSupervisor",
                .product(name: "Yams", package: "Yams", condition: .when(traits: ["Supervisor"])),
            ], swiftSettings: rules),
        .target(name: "CPlimsollSupervisor"),

        // At home in the server ecosystem: one line adds it to a group of services, and its operators see what it does.
        .target(
            name: "PlimsollService",
            dependencies: [
                "Plimsoll", "PlimsollLifecycle", "PlimsollLinux", "PlimsollHeap",
                .product(
                    name: "ServiceLifecycle", package: "swift-service-lifecycle", condition: .when(traits: ["Service"])),
                .product(name: "Logging", package: "swift-log", condition: .when(traits: ["Service"])),
                .product(name: "Metrics", package: "swift-metrics", condition: .when(traits: ["Service"])),
                .product(name: "Configuration", package: "swift-configuration", condition: .when(traits: ["Service"])),
                .product(name: "Tracing", package: "swift-distributed-tracing", condition: .when(traits: ["Tracing"])),
            ],
            swiftSettings: rules),

        // One framework each, behind a trait. Their tests are in Tests/Ecosystem, a package of its own.
        .target(
            name: "PlimsollHummingbird",
            dependencies: [
                "Plimsoll", "PlimsollLifecycle", "PlimsollService",
                .product(name: "Hummingbird", package: "hummingbird", condition: .when(traits: ["Hummingbird"])),
                .product(name: "HummingbirdCore", package: "hummingbird", condition: .when(traits: ["Hummingbird"])),
                .product(name: "HTTPTypes", package: "swift-http-types", condition: .when(traits: ["Hummingbird"])),
                .product(name: "NIOCore", package: "swift-nio", condition: .when(traits: ["Hummingbird"])),
                .product(name: "NIOHTTPTypes", package: "swift-nio-extras", condition: .when(traits: ["Hummingbird"])),
                .product(name: "Logging", package: "swift-log", condition: .when(traits: ["Hummingbird"])),
                .product(name: "Metrics", package: "swift-metrics", condition: .when(traits: ["Hummingbird"])),
            ],
            swiftSettings: rules),
        .target(
            name: "PlimsollGRPC",
            dependencies: [
                "Plimsoll", "PlimsollLifecycle", "PlimsollService",
                .product(name: "GRPCCore", package: "grpc-swift-2", condition: .when(traits: ["GRPC"])),
            ],
            swiftSettings: rules),
        .target(
            name: "PlimsollNIO",
            dependencies: [
                "Plimsoll", .product(name: "NIOCore", package: "swift-nio", condition: .when(traits: ["NIO"])),
                .product(
                    name: "AsyncHTTPClient", package: "async-http-client", condition: .when(traits: ["AsyncHTTPClient"])
                ),
            ],
            swiftSettings: rules),
        .target(
            name: "PlimsollGRDB",
            dependencies: [
                "Plimsoll", "PlimsollLifecycle",
                .product(name: "GRDB", package: "GRDB.swift", condition: .when(traits: ["GRDB"])),
                .product(name: "GRDBSQLite", package: "GRDB.swift", condition: .when(traits: ["GRDB"])),
            ],
            swiftSettings: rules),
        .target(
            name: "PlimsollPostgreSQL",
            dependencies: [
                "Plimsoll", "PlimsollLifecycle", .target(name: "CPostgreSQL", condition: .when(traits: ["PostgreSQL"])),
            ],
            swiftSettings: rules),
        .systemLibrary(name: "CPostgreSQL", providers: [.apt(["libpq-dev"])]),
        .target(
            name: "PlimsollSpill",
            dependencies: [
                "Plimsoll", .target(name: "CSpill", condition: .when(traits: ["Spill"])),
            ],
            swiftSettings: rules),
        .systemLibrary(name: "CSpill", providers: [.apt(["libmemcached-dev", "libhiredis-dev", "libssl-dev"])]),

        // Drawn traces, simulation and a scripted source, for this package's tests and its users'.
        .target(name: "PlimsollTesting", dependencies: ["Plimsoll", "PlimsollLifecycle"], swiftSettings: rules),

        // Demos, stress runs and the processes that they start, and what the commands share. No product: only the
        // executables of this package link it.
        .target(
            name: "PlimsollDemos",
            dependencies: [
                "Plimsoll", "PlimsollLifecycle", "PlimsollLinux", "PlimsollService", "PlimsollSupervisor",
                "PlimsollTesting",
                "CPlimsollMemory",
                .product(name: "ArgumentParser", package: "swift-argument-parser", condition: .when(traits: ["CLI"])),
            ],
            swiftSettings: rules),
        .executableTarget(
            name: "PlimsollCLI",
            dependencies: [
                "Plimsoll", "PlimsollLifecycle", "PlimsollLinux", "PlimsollService", "PlimsollSupervisor",
                "PlimsollHeap",
                "PlimsollTesting",
                "PlimsollDemos",
                .product(name: "ArgumentParser", package: "swift-argument-parser", condition: .when(traits: ["CLI"])),
            ],
            swiftSettings: rules),

        // Benchmarks and the processes that they start. Declared here and not in the package of Benchmarks, as they use
        // what is `package` here. No product: nobody who depends on this package builds it.
        .executableTarget(
            name: "plimsoll-bench",
            dependencies: [
                "Plimsoll", "PlimsollLifecycle", "PlimsollLinux", "PlimsollService", "PlimsollSupervisor",
                "PlimsollHeap",
                "PlimsollTesting",
                "PlimsollDemos",
                // `hostile` kills a supervisor as the tests do.
                "CSystemCallKiller",
                // The tests start this program, also under the thread sanitizer.
                "CThreadSanitizer",
                .product(name: "ArgumentParser", package: "swift-argument-parser", condition: .when(traits: ["CLI"])),
                .product(
                    name: "ServiceLifecycle", package: "swift-service-lifecycle", condition: .when(traits: ["Service"])),
                .product(
                    name: "UnixSignals", package: "swift-service-lifecycle", condition: .when(traits: ["Service"])),
                .product(name: "Logging", package: "swift-log", condition: .when(traits: ["Service"])),
            ],
            path: "Benchmarks/Process", swiftSettings: rules),

        // What docs/operations runs. No product: nobody who depends on this package builds it.
        .executableTarget(
            name: "shop",
            dependencies: [
                "Plimsoll", "PlimsollLifecycle", "PlimsollLinux", "PlimsollService",
                .product(
                    name: "ServiceLifecycle", package: "swift-service-lifecycle", condition: .when(traits: ["Service"])),
                .product(name: "Logging", package: "swift-log", condition: .when(traits: ["Service"])),
                .product(
                    name: "UnixSignals", package: "swift-service-lifecycle", condition: .when(traits: ["Service"])),
                .product(name: "Configuration", package: "swift-configuration", condition: .when(traits: ["Service"])),
            ],
            path: "docs/examples/Shop", swiftSettings: rules),

        // Waiting without a spin, for every test target.
        .target(
            name: "TestSupport",
            dependencies: ["Plimsoll", "PlimsollLifecycle", "PlimsollTesting", "CThreadSanitizer"],
            path: "Tests/TestSupport", swiftSettings: rules),
        .target(name: "CAllocationCounter", path: "Tests/CAllocationCounter"),
        .target(name: "CThreadSanitizer", path: "Tests/CThreadSanitizer"),
        .target(name: "CSystemCallKiller", path: "Tests/CSystemCallKiller"),
        .target(name: "CSystemCallFaults", path: "Tests/CSystemCallFaults"),
        .testTarget(
            name: "PlimsollTests",
            dependencies: ["Plimsoll", "PlimsollLifecycle", "PlimsollTesting", "CAllocationCounter", "TestSupport"],
            swiftSettings: rules),
        .testTarget(
            name: "PlimsollLifecycleTests",
            dependencies: ["Plimsoll", "PlimsollLifecycle", "PlimsollTesting", "CAllocationCounter", "TestSupport"],
            swiftSettings: rules),
        .testTarget(
            name: "PlimsollFoundationTests",
            dependencies: [
                "PlimsollFoundation", "PlimsollFoundationNetworking", "Plimsoll", "PlimsollLifecycle",
                "PlimsollTesting", "TestSupport",
            ],
            swiftSettings: rules),
        .testTarget(
            name: "PlimsollLinuxTests",
            dependencies: [
                "PlimsollLifecycle", "PlimsollLinux", "PlimsollTesting", "CPlimsollLinux", "CAllocationCounter",
                "CSystemCallKiller",
                "TestSupport",
            ],
            swiftSettings: rules),
        .testTarget(
            name: "PlimsollServiceTests",
            dependencies: [
                "PlimsollService", "Plimsoll", "PlimsollLifecycle", "PlimsollFoundation", "PlimsollLinux",
                "PlimsollHeap",
                "PlimsollSupervisor",
                "PlimsollTesting",
                "CAllocationCounter", "TestSupport",
                .product(
                    name: "ServiceLifecycle", package: "swift-service-lifecycle", condition: .when(traits: ["Service"])),
                .product(name: "Logging", package: "swift-log", condition: .when(traits: ["Service"])),
                .product(name: "Metrics", package: "swift-metrics", condition: .when(traits: ["Service"])),
                .product(name: "MetricsTestKit", package: "swift-metrics", condition: .when(traits: ["Service"])),
                .product(name: "Configuration", package: "swift-configuration", condition: .when(traits: ["Service"])),
                .product(
                    name: "UnixSignals", package: "swift-service-lifecycle", condition: .when(traits: ["Service"])),
            ],
            swiftSettings: rules),
        .testTarget(
            name: "PlimsollHeapTests",
            dependencies: [
                "PlimsollHeap", "CPlimsollHeap", "plimsoll-bench", "Plimsoll", "PlimsollDemos", "PlimsollTesting",
                "CAllocationCounter", "TestSupport",
            ],
            swiftSettings: rules),
        .testTarget(
            name: "PlimsollSupervisorTests",
            dependencies: [
                "PlimsollSupervisor", "PlimsollLinux", "Plimsoll", "PlimsollLifecycle", "PlimsollTesting",
                "CPlimsollSupervisor",
                "CSystemCallFaults", "TestSupport",
            ],
            swiftSettings: rules),
        .testTarget(
            name: "PlimsollDemosTests",
            dependencies: [
                "PlimsollDemos", "Plimsoll", "PlimsollLifecycle", "PlimsollLinux", "PlimsollSupervisor",
                "PlimsollTesting", "TestSupport",
            ],
            swiftSettings: rules),
        .testTarget(
            name: "PlimsollCLITests",
            dependencies: [
                "PlimsollCLI", "PlimsollDemos", "Plimsoll", "PlimsollLifecycle", "PlimsollLinux", "PlimsollService",
                "PlimsollTesting", "PlimsollHeap",
                "TestSupport",
                .product(name: "ArgumentParser", package: "swift-argument-parser", condition: .when(traits: ["CLI"])),
            ],
            swiftSettings: rules),
        .testTarget(
            name: "PlimsollBenchTests",
            dependencies: [
                "plimsoll-bench", "PlimsollDemos", "Plimsoll", "PlimsollLifecycle", "PlimsollSupervisor",
                "PlimsollTesting", "TestSupport",
                .product(name: "ArgumentParser", package: "swift-argument-parser", condition: .when(traits: ["CLI"])),
            ],
            swiftSettings: rules),
    ],
    swiftLanguageModes: [.v6]
)

// `make quick`: the core alone, without any other package and without Foundation. Suites that take two thirds of the
// tests' time, or block the cooperative pool's threads for seconds, are left to `make test`.
if Context.environment["PLIMSOLL_CORE"] == "1" {
    let core: Set = [
        "Plimsoll", "CPlimsollMemory", "CPlimsollProcess", "PlimsollLifecycle", "PlimsollLinux", "CPlimsollLinux",
        "PlimsollTesting", "TestSupport", "CAllocationCounter", "CThreadSanitizer", "CSystemCallKiller",
        "PlimsollTests", "PlimsollLifecycleTests", "PlimsollLinuxTests",
    ]
    package.dependencies = []
    package.traits = []
    package.targets.removeAll { !core.contains($0.name) }
    package.products.removeAll { !core.contains($0.name) }

    let long = [
        "PlimsollTests": [
            "Caches/CacheIndexTests.swift", "Caches/CacheKeyTests.swift", "Caches/CacheReplayTests.swift",
            "Caches/CacheTortureTests.swift", "Caches/LinearizabilityTests.swift",
            "Caches/PurgeableCacheExpiryTests.swift", "Caches/PurgeableCacheMemoryTests.swift",
            "Caches/VolatileBoundTests.swift", "Caches/VolatileDropTests.swift", "Caches/VolatilePolicyTests.swift",
            "Caches/VolatileProcessTests.swift", "Caches/VolatileSharingTests.swift",
            "Concurrency/AlarmThreadTests.swift", "Manager/DividerTests.swift", "Manager/StormTests.swift",
            "Tasks/BackgroundTaskStormTests.swift", "Tasks/TaskHistoryTests.swift", "Worth/CurveMeterTests.swift",
            "Worth/DivisionTests.swift", "Worth/MiniatureCacheTests.swift",
        ],
        "PlimsollLifecycleTests": [
            "Concurrency/DeadlineRaceTests.swift", "Concurrency/ThreadRefusalTests.swift",
            "Quiesce/GateHistoryTests.swift",
        ],
        "PlimsollLinuxTests": ["BlackBox/BoxFileTests.swift"],
    ]
    for target in package.targets { target.exclude += long[target.name] ?? [] }
}

// `make sim`: the library on simulated threads. Linked with flags of its own, so nothing else builds it.
if Context.environment["PLIMSOLL_SIM"] == "1" {
    package.targets += [
        .target(name: "CSimulatedThreads", path: "Tests/Simulation/Scheduler"),
        .executableTarget(
            name: "plimsoll-sim",
            dependencies: [
                "Plimsoll", "PlimsollLifecycle", "PlimsollLinux", "PlimsollSupervisor", "PlimsollTesting",
                "CSimulatedThreads",
            ], path: "Tests/Simulation/World", swiftSettings: rules),
    ]
}

// `make fuzz`: the parsers, called by libFuzzer. All of it is compiled for coverage, in a build of its own.
if Context.environment["PLIMSOLL_FUZZ"] == "1" {
    package.targets += [
        .systemLibrary(name: "CFuzzer", path: "Tests/Fuzz/Driver"),
        .executableTarget(
            name: "plimsoll-fuzz",
            dependencies: [
                "Plimsoll", "PlimsollLifecycle", "PlimsollLinux", "PlimsollService", "PlimsollSupervisor",
                "PlimsollSpill", "PlimsollTesting", "CFuzzer",
            ], path: "Tests/Fuzz/Formats", swiftSettings: rules),
    ]
}
