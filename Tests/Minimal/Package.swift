// swift-tools-version: 6.2
import PackageDescription

// The smallest program that uses the library, for a measurement of the size.
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
