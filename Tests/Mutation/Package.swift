// swift-tools-version: 6.2
import PackageDescription

/// Mutation tests of the main package. The package is separate because the generator needs swift-syntax.
let package = Package(
    name: "plimsoll-mutation",
    platforms: [.macOS(.v15)],
    dependencies: [
        .package(url: "https://github.com/swiftlang/swift-syntax", from: "603.0.1"),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
    ],
    targets: [
        .target(
            name: "Schemata",
            dependencies: [
                .product(name: "SwiftSyntax", package: "swift-syntax"),
                .product(name: "SwiftParser", package: "swift-syntax"),
                .product(name: "SwiftOperators", package: "swift-syntax"),
            ]),
        .executableTarget(
            name: "mutate",
            dependencies: ["Schemata", .product(name: "ArgumentParser", package: "swift-argument-parser")]),
        .testTarget(name: "SchemataTests", dependencies: ["Schemata"]),
    ],
    swiftLanguageModes: [.v6]
)
