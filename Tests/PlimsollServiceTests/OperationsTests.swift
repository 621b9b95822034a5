import Foundation
import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollService

/// The documents and files in docs/operations agree with the code, and the names in those files exist.
@Suite(.timeLimit(.minutes(5))) struct OperationsTests {
    private static let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../../docs/operations")
        .standardized

    private func text(_ name: String) throws -> String { try String(contentsOf: Self.folder.appendingPathComponent(name), encoding: .utf8) }

    /// Returns the rows of the tables, without headers.
    private func rows(_ name: String) throws -> [[String]] {
        try text(name).split(separator: "\n").filter { $0.hasPrefix("| `") }.map { line in
            line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
        }
    }

    /// Expects a table in a document, or writes the table if `PLIMSOLL_WRITE_OPERATIONS` is set.
    private func expect(_ name: String, _ header: String, _ rows: [[String]]) throws {
        let lines = rows.map { "| " + $0.joined(separator: " | ") + " |" }
        if ProcessInfo.processInfo.environment["PLIMSOLL_WRITE_OPERATIONS"] != nil {
            let old = try text(name), start = try #require(old.range(of: header)).upperBound
            let head = old[..<start] + "\n|" + String(repeating: "---|", count: rows[0].count) + "\n"
            let rest = old[start...].split(separator: "\n", omittingEmptySubsequences: false).dropFirst().drop { $0.hasPrefix("|") }
            try (head + lines.joined(separator: "\n") + "\n" + rest.joined(separator: "\n")).write(
                to: Self.folder.appendingPathComponent(name), atomically: true, encoding: .utf8)
        }
        let found = try text(name)
        for line in lines { #expect(found.contains(line), "\(name) should have: \(line)") }
        #expect(try self.rows(name).count == lines.count, "\(name) has rows without a source in the code")
    }

    @Test func `every setting is documented with name, type, standard value and range`() throws {
        try expect(
            "configuration.md", "| key | environment | type | standard | allowed | live | meaning |",
            ServiceSettings.keys.map {
                ["`\($0.name)`", "`\($0.variable)`", $0.type, $0.standard, $0.range, $0.isLive ? "yes" : "", $0.meaning]
            })
    }

    @Test func `ArticleTests compile the snippet on configuration`() throws {
        let article = try String(
            contentsOf: URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("ArticleTests.swift"), encoding: .utf8)
        let parts = try text("configuration.md").components(separatedBy: "```")
        let lines = try #require(parts.count > 1 ? parts[1] : nil).split(separator: "\n").dropFirst()
        #expect(lines.count == 4)
        for line in lines {
            let code = line.components(separatedBy: "  //")[0].trimmingCharacters(in: .whitespaces)
            #expect(article.contains(code), "\(code)")
        }
    }

    @Test func `every metric is documented`() throws {
        let families = MetricCatalogue.families(ResourceManager(source: ScriptedPressureSource()).status)
        try expect("metrics.md", "| metric | type | meaning |", families.map { ["`\($0.name)`", $0.kind.rawValue, $0.help] })
    }

    @Test(arguments: ["alerts.yml", "dashboard.json", "runbook.md", "kubernetes.yaml", "deployment.md"])
    func `each metric that a file names is measured under that name`(file: String) throws {
        let families = MetricCatalogue.families(ResourceManager(source: ScriptedPressureSource()).status)
        var known = Set(families.map(\.name))
        for family in families where family.kind == .histogram {
            for end in ["_bucket", "_sum", "_count"] { known.insert(family.name + end) }
        }
        let named = Set(try text(file).matches(of: #/plimsoll_[a-z_]+[a-z]/#).map { String($0.output) })
        #expect(named.isSubset(of: known), "\(file): \(named.subtracting(known))")
        #expect(!named.isEmpty)
    }

    @Test func `each alert has a part of the runbook, and each part an alert`() throws {
        let alerts = try text("alerts.yml").matches(of: #/alert: (\w+)/#).map { String($0.output.1) }
        let parts = try text("runbook.md").matches(of: #/(?m)^## (Plimsoll\w+)$/#).map { String($0.output.1) }
        #expect(alerts == parts && alerts.count == 12)
        for alert in alerts { #expect(try text("alerts.yml").contains("runbook.md#\(alert.lowercased())"), "\(alert)") }
    }

    @Test(.needs(Tool.promtool != nil, "promtool is not installed (Debian: prometheus)"))
    func `the rules fire on their cases and only then, by Prometheus' own test`() throws {
        let said = try Tool.run(Tool.promtool!, ["test", "rules", Self.folder.appendingPathComponent("alerts.test.yml").path])
        #expect(said.status == 0, "\(said.output)")
    }

    @Test func `the dashboard is JSON, and the panels have queries`() throws {
        let dashboard = try #require(try JSONSerialization.jsonObject(with: Data(try text("dashboard.json").utf8)) as? [String: Any])
        let panels = try #require(dashboard["panels"] as? [[String: Any]])
        #expect(panels.count > 10)
        for panel in panels {
            let targets = try #require(panel["targets"] as? [[String: Any]])
            #expect(!targets.isEmpty && targets.allSatisfy { ($0["expr"] as? String)?.contains("plimsoll_") == true })
        }
    }

    @Test(.needs(Tool.find("kubernetes-validate") != nil, "kubernetes-validate is not installed (pip install kubernetes-validate)"))
    func `the manifests are valid`() throws {
        let said = try Tool.run(Tool.find("kubernetes-validate")!, [Self.folder.appendingPathComponent("kubernetes.yaml").path])
        #expect(said.status == 0, "\(said.output)")
    }

    @Test func `manifests follow the guide: requests are limits, the grace exceeds the budget, settings exist`() throws {
        let manifest = try text("kubernetes.yaml")
        #expect(manifest.matches(of: #/memory: 512Mi/#).count == 2)
        let grace = try #require(manifest.firstMatch(of: #/terminationGracePeriodSeconds: (\d+)/#)?.output.1)
        let variables = manifest.matches(of: #/name: (PLIMSOLL_\w+), value: "(\w+)"/#)
        let settings = try ServiceSettings(
            environment: Dictionary(uniqueKeysWithValues: variables.map { (String($0.output.1), String($0.output.2)) }))
        #expect(variables.count == 2 && Duration.seconds(Int(grace) ?? 0) > settings.shutdownBudget)
    }

    @Test func `the image has what the manifest asks for: ports, probes, the command plimsoll, and a place for the socket`() throws {
        let manifest = try text("kubernetes.yaml"), image = try text("Dockerfile")
        let program = try text("../examples/Pod/Pod.swift")
        // The ports of the container, of the image's environment, of the program, and of the clients.
        let ports = Dictionary(
            uniqueKeysWithValues: manifest.matches(of: #/name: (\w+), containerPort: (\d+)/#).map {
                ("\($0.output.1)", "\($0.output.2)")
            })
        #expect(ports == ["http": "8080", "admin": "8081"])
        for (variable, port) in [("PORT", ports["http"]), ("ADMIN_PORT", ports["admin"])] {
            #expect(image.contains(" \(variable)=\(port ?? "")") && program.contains("\"\(variable)\", \(port ?? ""))"), "\(variable)")
        }
        #expect(image.contains("HOST=0.0.0.0") && program.contains("\"HOST\""))
        #expect(manifest.contains("prometheus.io/port: \"\(ports["admin"] ?? "")\""))
        #expect(try text("podmonitor.yaml").contains("- port: admin"))
        // Each probe asks for a page that the program has on that port.
        let probes = manifest.matches(of: #/httpGet: { path: ([^,]+), port: (\w+) }/#).map { ("\($0.output.1)", "\($0.output.2)") }
        #expect(probes.map(\.0) == ["/healthz", "/readyz", "/readyz"] && probes.allSatisfy { $0.1 == "http" })
        #expect(probes.allSatisfy { path, _ in AdminPages.Page(rawValue: path)?.isCheck == true })
        #expect(program.contains("[\"/healthz\", \"/readyz\"]"))
        // The user of the pod is the image's and owns the directory. The socket and the record lie in the mounted
        // volume.
        for user in ["runAsUser: 10001", "fsGroup: 10001"] { #expect(manifest.contains(user)) }
        #expect(image.contains("USER 10001:10001") && image.contains("install -d -o 10001 -g 10001 -m 0700 /run/plimsoll"))
        #expect(image.contains("RUNTIME_DIRECTORY=/run/plimsoll") && manifest.contains("mountPath: /run/plimsoll"))
        // The image copies the products that it builds, and these exist.
        let products = image.matches(of: #/--product (\w+)/#).map { "\($0.output.1)" }
        #expect(products == ["pod", "plimsoll"] && products.allSatisfy { image.contains("/.build/release/\($0) ") })
        #expect(try text("../examples/Pod/Package.swift").contains(".executable(name: \"pod\""))
        #expect(try text("../../Package.swift").contains(".executable(name: \"plimsoll\""))
        #expect(try text("../../.dockerignore").contains("**/.build"))
    }

    @Test func `each use of another package is behind a trait, so that a consumer without traits resolves none`() throws {
        let manifest = try text("../../Package.swift")
        let uses = manifest.matches(of: #/\.product\(\s*name: "\w+",\s*package: "[\w.-]+"(.*?)\)\)?,?\n/#.dotMatchesNewlines())
        #expect(uses.count > 30)
        for use in uses { #expect(use.output.1.contains("condition: .when(traits: [\""), "\(use.output.0)") }
        #expect(manifest.components(separatedBy: ".product(").count - 1 == uses.count)
    }

    @Test func `an autoscaler follows memory that caches cannot give back`() throws {
        let named = try text("kubernetes.yaml").matches(of: #/metric: { name: (\w+) }/#).map { "\($0.output.1)" }
        #expect(named == ["plimsoll_memory_unreleasable_ratio"])
    }

    @Test func `the unit follows the guide: the stop timeout exceeds the budget, the limits lie a tenth apart`() throws {
        let lines = try text("shop.service").split(separator: "\n").map { $0.split(separator: "=", maxSplits: 1).map(String.init) }
        let unit = Dictionary(lines.filter { $0.count == 2 }.map { ($0[0], $0[1]) }) { $1 }
        func time(_ key: String) throws -> Duration { try #require(unit[key].flatMap { Duration(plimsoll: $0) }, "\(key)=") }
        func size(_ key: String) throws -> ByteCount { try #require(unit[key].flatMap { ByteCount($0) }, "\(key)=") }
        #expect(try time("TimeoutStopSec") > ServiceSettings().shutdownBudget)
        // The link answers each second. The loop behind the link may take longer when the host is busy.
        #expect(try time("WatchdogSec") >= .seconds(20))
        let high = try size("MemoryHigh"), most = try size("MemoryMax")
        #expect(high < most && high.bytes * 10 >= most.bytes * 9)
        #expect(unit["RestartPreventExitStatus"] == "\(ConfigurationProblem.exitStatus)" && unit["NotifyAccess"] == "main")
    }
}
