// swift-tools-version: 6.2
import PackageDescription

// The least program that uses the library: what it weighs.
let package = Package(
    name: "minimal",
    dependencies: [.package(name: "plimsoll", path: "../..")],
    targets: [
        .executableTarget(
            name: "Minimal",
            dependencies: [.product(name: "Plimsoll", package: "plimsoll"), .product(name: "PlimsollLinux", package: "plimsoll")])
    ],
    swiftLanguageModes: [.v6]
)
