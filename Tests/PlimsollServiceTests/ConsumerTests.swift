import Foundation
import TestSupport
import Testing

private let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../..")
    .standardized.path
private let hasPackage = Tool.find("swift") != nil && FileManager.default.fileExists(atPath: root + "/Package.swift")

/// The package as other packages depend on it.
@Suite(.needs(hasPackage, "no swift, or no sources"), .timeLimit(.minutes(5))) struct ConsumerTests {
    /// Runs SwiftPM's resolver on a package that depends on this one, and returns the names of the resolved packages.
    private func packages(traits: String) throws -> [String] {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("consumer-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }
        try FileManager.default.createDirectory(at: folder.appendingPathComponent("Sources/App"), withIntermediateDirectories: true)
        try "".write(to: folder.appendingPathComponent("Sources/App/App.swift"), atomically: true, encoding: .utf8)
        let manifest = """
            // swift-tools-version: 6.2
            import PackageDescription
            let package = Package(
                name: "consumer",
                dependencies: [.package(name: "plimsoll", path: "\(root)", traits: [\(traits)])],
                targets: [
                    .target(
                        name: "App",
                        dependencies: [
                            .product(name: "Plimsoll", package: "plimsoll"), .product(name: "PlimsollLinux", package: "plimsoll"),
                        ])
                ])
            """
        try manifest.write(to: folder.appendingPathComponent("Package.swift"), atomically: true, encoding: .utf8)
        // Standard error apart: SwiftPM reports fetches there.
        let arguments = ["-c", "swift package --package-path '\(folder.path)' show-dependencies --format json 2>'\(folder.path)/errors'"]
        let (status, output) = try Tool.run("/bin/sh", arguments)
        let errors = (try? String(contentsOf: folder.appendingPathComponent("errors"), encoding: .utf8)) ?? ""
        try #require(status == 0, "\(output) \(errors)")
        struct Dependency: Decodable {
            var identity: String
            var dependencies: [Dependency]
            var all: [String] { dependencies.flatMap { [$0.identity] + $0.all } }
        }
        let direct = try JSONDecoder().decode(Dependency.self, from: Data(output.utf8)).dependencies
        try #require(direct.count == 1, "the consumer depends on this package alone: \(output)")
        return direct[0].all
    }

    @Test func `a consumer without traits resolves no other package`() throws {
        #expect(try packages(traits: "") == [])
    }

    @Test func `a trait brings its packages`() throws {
        #expect(try packages(traits: #""Supervisor""#) == ["yams"])
    }

    /// Compiles a program that uses a product without the trait of the product. The tests' own build has these traits
    /// off.
    @Test(arguments: [
        ("PlimsollHummingbird", "LoadSheddingMiddleware<Int>", "Hummingbird"), ("PlimsollNIO", "ScaledHTTPClient", "AsyncHTTPClient"),
        ("PlimsollGRDB", "PurgeableDatabase", "GRDB"), ("PlimsollPostgreSQL", "PostgreSQLTaskHandoff", "PostgreSQL"),
        ("PlimsollSpill", "SpilledCache<String, String>", "Spill"), ("PlimsollGRPC", "LoadSheddingInterceptor", "GRPC"),
    ])
    func `a product that is used without its trait names the trait`(product: String, type: String, trait: String) throws {
        // The bundle runs the tests, or a helper that receives the path of the bundle.
        let bundle = try #require(CommandLine.arguments.first { $0.contains(".xctest") })
        let folder = URL(fileURLWithPath: bundle).path.components(separatedBy: "/plimsollPackageTests.xctest")[0]
        let maps = ["CPlimsollMemory", "CPlimsollProcess"].map { "-Xcc '-fmodule-map-file=\(folder)/\($0).build/module.modulemap'" }
        let program = FileManager.default.temporaryDirectory.appendingPathComponent("\(product)-\(UUID().uuidString).swift")
        defer { try? FileManager.default.removeItem(at: program) }
        try "import \(product)\nlet used: \(type)? = nil\n".write(to: program, atomically: true, encoding: .utf8)
        let command = "swiftc -typecheck -I '\(folder)/Modules' \(maps.joined(separator: " ")) '\(program.path)' 2>&1"
        let (status, output) = try Tool.run("/bin/sh", ["-c", command])
        #expect(status != 0 && output.contains("traits: [\"\(trait)\"]"), "\(output)")
    }

    @Test func `an import of a package says which trait brings the package`() throws {
        let brings = [
            "Configuration": "Service", "Logging": "Service", "Metrics": "Service", "ServiceLifecycle": "Service", "Yams": "Supervisor",
        ]
        var found = Set<String>()
        for module in ["PlimsollService", "PlimsollSupervisor"] {
            let folder = URL(fileURLWithPath: root).appendingPathComponent("Sources/\(module)")
            for case let file as URL in try #require(FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil))
            where file.pathExtension == "swift" {
                for line in try String(contentsOf: file, encoding: .utf8).split(separator: "\n") {
                    guard let match = line.wholeMatch(of: /(?:public |package )?import (\w+)(.*)/), let trait = brings["\(match.1)"] else { continue }
                    #expect(match.2 == "  // of the trait \"\(trait)\"", "\(file.path): \(line)")
                    found.insert("\(match.1)")
                }
            }
        }
        #expect(found == Set(brings.keys))
    }

    @Test func `gRPC comes with its trait alone`() throws {
        #expect(try !packages(traits: ".defaults").contains { $0.contains("grpc") })
        #expect(try packages(traits: #""GRPC""#).contains("grpc-swift-2"))
    }
}
