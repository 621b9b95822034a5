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
    products: [
        .library(name: "Plimsoll", targets: ["Plimsoll"]),
        .library(name: "PlimsollLinux", targets: ["PlimsollLinux"]),
        .library(name: "PlimsollFoundation", targets: ["PlimsollFoundation"]),
        .library(name: "PlimsollFoundationNetworking", targets: ["PlimsollFoundationNetworking"]),
        .library(name: "PlimsollJemalloc", targets: ["PlimsollJemalloc"]),
        .library(name: "PlimsollSupervisor", targets: ["PlimsollSupervisor"]),
        .library(name: "PlimsollTesting", targets: ["PlimsollTesting"]),
        .executable(name: "plimsoll", targets: ["PlimsollCLI"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/jpsim/Yams", from: "6.2.2"),
    ],
    targets: [
        // What pressure means and what to do about it. No Foundation, no Glibc, no package.
        .target(name: "Plimsoll", dependencies: ["CPlimsollMemory", "CPlimsollProcess"], swiftSettings: rules),
        .target(name: "CPlimsollMemory"),
        .target(name: "CPlimsollProcess"),

        // Eyes: the kernel's files and events.
        .target(name: "PlimsollLinux", dependencies: ["Plimsoll", "CPlimsollLinux"], swiftSettings: rules),
        .target(name: "CPlimsollLinux"),

        // NSCache's calls, Foundation's types in volatile memory.
        .target(name: "PlimsollFoundation", dependencies: ["Plimsoll"], swiftSettings: rules),
        // URLCache. Apart, as FoundationNetworking is apart: it needs libcurl, and two dozen libraries behind that, to start.
        .target(name: "PlimsollFoundationNetworking", dependencies: ["Plimsoll"], swiftSettings: rules),
        // jemalloc as the process's allocator. It compiles where the library is absent; programs that use it are linked where it is installed.
        // No `pkgConfig:`, which would have SwiftPM warn everybody who does without it (swift-package-manager #10549).
        .target(name: "PlimsollJemalloc", dependencies: ["Plimsoll", "CPlimsollMemory", "CPlimsollJemalloc", "CJemalloc"], swiftSettings: rules),
        .target(name: "CPlimsollJemalloc", dependencies: ["CPlimsollMemory"]),
        .systemLibrary(name: "CJemalloc", providers: [.apt(["libjemalloc-dev"]), .yum(["jemalloc-devel"])]),

        // Suspend and terminate across services: the one process that others are run by.
        .target(
            name: "PlimsollSupervisor",
            dependencies: ["Plimsoll", "PlimsollLinux", "CPlimsollSupervisor", .product(name: "Yams", package: "Yams")], swiftSettings: rules),
        .target(name: "CPlimsollSupervisor"),

        // Drawn traces, simulation and a scripted source, for this package's tests and its users'.
        .target(name: "PlimsollTesting", dependencies: ["Plimsoll"], swiftSettings: rules),

        .executableTarget(
            name: "PlimsollCLI",
            dependencies: [
                "Plimsoll", "PlimsollLinux", "PlimsollSupervisor", "PlimsollTesting", "CPlimsollLinux", "CPlimsollMemory",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: rules),

        .target(name: "CAllocationCounter", path: "Tests/CAllocationCounter"),
        .target(name: "CSystemCallKiller", path: "Tests/CSystemCallKiller"),
        .target(name: "CSystemCallFaults", path: "Tests/CSystemCallFaults"),
        .testTarget(
            name: "PlimsollTests", dependencies: ["Plimsoll", "PlimsollTesting", "CAllocationCounter"], swiftSettings: rules),
        .testTarget(
            name: "PlimsollFoundationTests", dependencies: ["PlimsollFoundation", "PlimsollFoundationNetworking", "Plimsoll", "PlimsollTesting"],
            swiftSettings: rules),
        .testTarget(
            name: "PlimsollLinuxTests",
            dependencies: ["PlimsollLinux", "PlimsollTesting", "CPlimsollLinux", "CAllocationCounter", "CSystemCallKiller"],
            swiftSettings: rules),
        .testTarget(
            name: "PlimsollSupervisorTests",
            dependencies: ["PlimsollSupervisor", "PlimsollLinux", "Plimsoll", "PlimsollTesting", "CPlimsollSupervisor", "CSystemCallFaults"],
            swiftSettings: rules),
        .testTarget(
            name: "PlimsollCLITests",
            dependencies: [
                "PlimsollCLI", "Plimsoll", "PlimsollLinux", "PlimsollSupervisor", "PlimsollTesting",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: rules),
    ],
    swiftLanguageModes: [.v6]
)
