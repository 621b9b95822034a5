// swift-tools-version: 6.2
import PackageDescription

let package = Package(
    name: "quickstart",
    dependencies: [
        // A package of yours has the URL of the repository here, and `from: "0.2.0"`.
        .package(name: "plimsoll", path: "../../..", traits: ["Hummingbird"]),
        .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1"),
    ],
    targets: [
        .executableTarget(
            name: "Quickstart",
            dependencies: [
                .product(name: "Plimsoll", package: "plimsoll"), .product(name: "PlimsollLinux", package: "plimsoll"),
                .product(name: "PlimsollService", package: "plimsoll"),
                .product(name: "PlimsollHummingbird", package: "plimsoll"),
                .product(name: "Hummingbird", package: "hummingbird"),
            ],
            path: ".", sources: ["Quickstart.swift"])
    ]
)
