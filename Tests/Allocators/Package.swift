// swift-tools-version: 6.2
import PackageDescription

// Programs that are linked, preloaded and instrumented in all ways that affect the owner of malloc. `matrix` runs them.
let package = Package(
    name: "allocators",
    dependencies: [.package(name: "plimsoll", path: "../..")],
    targets: [
        .target(
            name: "Report",
            dependencies: [
                .product(name: "Plimsoll", package: "plimsoll"), .product(name: "PlimsollLifecycle", package: "plimsoll"),
            ]),
        .executableTarget(name: "probe", dependencies: ["Report"]),
        .executableTarget(name: "probe-linked", dependencies: ["Report", .product(name: "PlimsollJemalloc", package: "plimsoll")]),
        .executableTarget(
            name: "probe-requests",
            dependencies: [
                .product(name: "Plimsoll", package: "plimsoll"), .product(name: "PlimsollJemalloc", package: "plimsoll"),
            ]),
    ],
    swiftLanguageModes: [.v6]
)
