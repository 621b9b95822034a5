// swift-tools-version: 6.2
import PackageDescription

// Programs to be linked, preloaded and instrumented in every way that decides who owns malloc; `matrix` runs them.
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
