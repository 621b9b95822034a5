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
        .library(name: "PlimsollTesting", targets: ["PlimsollTesting"]),
        .executable(name: "plimsoll", targets: ["PlimsollCLI"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2")
    ],
    targets: [
        // What pressure means and what to do about it. No Foundation, no Glibc, no package.
        .target(name: "Plimsoll", dependencies: ["CPlimsollMemory", "CPlimsollProcess"], swiftSettings: rules),
        .target(name: "CPlimsollMemory"),
        .target(name: "CPlimsollProcess"),

        // Eyes: the kernel's files and events.
        .target(name: "PlimsollLinux", dependencies: ["Plimsoll", "CPlimsollLinux"], swiftSettings: rules),
        .target(name: "CPlimsollLinux"),

        // Foundation's types in volatile memory.
        .target(name: "PlimsollFoundation", dependencies: ["Plimsoll"], swiftSettings: rules),

        // Drawn traces, simulation and a scripted source, for this package's tests and its users'.
        .target(name: "PlimsollTesting", dependencies: ["Plimsoll"], swiftSettings: rules),

        .executableTarget(
            name: "PlimsollCLI",
            dependencies: [
                "Plimsoll", "PlimsollLinux", "PlimsollTesting", "CPlimsollLinux",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: rules),

        .target(name: "CAllocationCounter", path: "Tests/CAllocationCounter"),
        .testTarget(
            name: "PlimsollTests", dependencies: ["Plimsoll", "PlimsollTesting", "CAllocationCounter"], swiftSettings: rules),
        .testTarget(name: "PlimsollFoundationTests", dependencies: ["PlimsollFoundation", "Plimsoll"], swiftSettings: rules),
        .testTarget(
            name: "PlimsollLinuxTests", dependencies: ["PlimsollLinux", "PlimsollTesting", "CPlimsollLinux", "CAllocationCounter"],
            swiftSettings: rules),
        .testTarget(
            name: "PlimsollCLITests",
            dependencies: [
                "PlimsollCLI", "Plimsoll", "PlimsollLinux", "PlimsollTesting",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: rules),
    ],
    swiftLanguageModes: [.v6]
)
