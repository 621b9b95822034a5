import Plimsoll
import PlimsollSupervisor
import PlimsollTesting
import TestSupport
import Testing

@Suite struct UnitsFileTests {
    /// Returns the problems of a file, as reported.
    private func problems(_ text: String) -> [String] {
        do throws(UnitsFileError) {
            _ = try UnitsFile(text, name: "U")
            return []
        } catch { return error.description.split(separator: "\n").map(String.init) }
    }

    /// Returns the problems of a file with one unit of those lines, each without the place up to the column. The first
    /// line is line 4 of the file.
    private func unitProblems(_ lines: String...) -> [String] {
        problems("version: 1\nunits:\n  web:\n" + lines.map { "    \($0)\n" }.joined())
    }

    /// Returns the lines between the first two fences of the documentation.
    private func example() throws -> String {
        let lines = try #require(Fixture.text(of: "docs/Units.md")).split(separator: "\n", omittingEmptySubsequences: false)
        let begin = try #require(lines.firstIndex(of: "```yaml"))
        return lines[(begin + 1)...].prefix { $0 != "```" }.joined(separator: "\n")
    }

    // MARK: Accepted files

    @Test func `the documentation's example parses unchanged`() throws {
        let file = try UnitsFile(example())
        #expect(file.units.map(\.name) == ["database", "web", "thumbnails", "logs"])
        #expect(file.policy["coolDown"]?.duration == .seconds(2) && file.policy["coolDown"]?.line == 4)
        var web = ServiceUnit(name: "web", origin: .command(["/usr/bin/server", "--port", "8080"]))
        web.environment = ["LOG_LEVEL": "info"]
        web.directory = "/srv/web"
        web.importance = 900
        (web.memoryRequest, web.memoryLimit) = (.mebibytes(256), .gibibytes(1))
        web.keepAlive = .seconds(600)
        web.restart = .always
        web.dependencies = ["database"]
        #expect(file.units[1] == web)
        #expect(file.units[2].origin == .command(["/usr/bin/thumbnails", "--queue", "new images"]))
        #expect(file.units[2].allowance == .seconds(30) && file.units[2].exitsOnSuspend && file.units[2].role == .background)
        #expect(file.units[3].origin == .process(4711) && file.units[3].restart == .never && file.units[3].suspension == .stop)
    }

    @Test func `the division of memory for caches is a word, and trust in a unit is a flag`() throws {
        let file = try UnitsFile("version: 1\npolicy: {division: worth}\nunits: {web: {command: [/x], trustsWorth: true}, other: {command: [/x]}}")
        #expect(try SupervisorPolicy(file).division == .byWorth && file.units.map(\.trustsWorth) == [true, false])
        #expect(try SupervisorPolicy(UnitsFile("version: 1\nunits: {}")).division == .proportional)
        #expect(try SupervisorPolicy(UnitsFile("version: 1\npolicy: {division: proportional}\nunits: {}")).division == .proportional)
        for wrong in ["equal", "5", "2s"] {
            let file = try UnitsFile("version: 1\npolicy: {division: \(wrong)}\nunits: {}", name: "U")
            let error = #expect(throws: SupervisorError.self) { try SupervisorPolicy(file) }
            #expect(error?.description == "U:2:20: policy: key `division` is \"\(wrong)\"; allowed are proportional and worth")
        }
    }

    @Test func `the documentation has every key of a unit`() throws {
        let article = try #require(Fixture.text(of: "docs/Units.md"))
        let found = try #require(unitProblems("command: [/x]", "zzzzzzzzzz: 1").first)
        let keys = try #require(found.split(separator: "allowed are ").last).split(separator: ", ")
        #expect(keys.count == 19)
        for key in keys where key != "memory" { #expect(article.contains("| `\(key)` |"), "\(key)") }
    }

    @Test(arguments: [
        ("/bin/a", ["/bin/a"]), ("/bin/a  b\tc", ["/bin/a", "b", "c"]), ("/bin/a 'b c' \"d e\"", ["/bin/a", "b c", "d e"]),
        ("/bin/a b\\ c", ["/bin/a", "b c"]), ("/bin/a ''", ["/bin/a", ""]), ("/bin/a x'y'\"z\"", ["/bin/a", "xyz"]),
        ("/bin/a --x=1 50% a#b a~b", ["/bin/a", "--x=1", "50%", "a#b", "a~b"]), ("/bin/a \"q\\\"r\\n\"", ["/bin/a", "q\"r\\n"]),
        ("/bin/a '$x'", ["/bin/a", "$x"]),
    ])
    func `a line is divided into words as by a shell`(line: String, words: [String]) throws {
        let file = try UnitsFile("version: 1\nunits:\n  a:\n    command: |-\n      \(line)\n")
        #expect(file.units.first?.origin == .command(words))
    }

    @Test(arguments: [
        "/bin/a $HOME", "/bin/a *.log", "/bin/a | b", "/bin/a && b", "/bin/a > f", "/bin/a `b`", "/bin/a \"$x\"", "/bin/a ~/f", "/bin/a # b",
        "/bin/a 'b",
    ])
    func `a line that needs a shell is refused with a replacement`(line: String) {
        let found = problems("version: 1\nunits:\n  a:\n    command: |-\n      \(line)\n")
        #expect(found.count == 1 && (found[0].contains("write a list") || found[0].contains("not closed")), "\(found)")
    }

    // MARK: Refused files

    @Test(arguments: [
        ("importance: 1001", "U:5:17: unit \"web\": key \"importance\": is \"1001\"; allowed is a whole number from 0 to 1000"),
        ("importance: -1", "U:5:17: unit \"web\": key \"importance\": is \"-1\"; allowed is a whole number from 0 to 1000"),
        ("importance: \"5\"", "U:5:17: unit \"web\": key \"importance\": is \"5\"; allowed is a whole number from 0 to 1000"),
        ("importance: [5]", "U:5:17: unit \"web\": key \"importance\": is a list; allowed is a whole number from 0 to 1000"),
        ("importance:", "U:5:16: unit \"web\": key \"importance\": is nothing; allowed is a whole number from 0 to 1000"),
        (
            "role: forground",
            "U:5:11: unit \"web\": key \"role\": is \"forground\"; allowed are foreground, background and deferred; did you mean \"foreground\"?"
        ),
        ("suspension: no", "U:5:17: unit \"web\": key \"suspension\": is \"no\"; allowed are freeze, stop and never"),
        ("exitsOnSuspend: yes", "U:5:21: unit \"web\": key \"exitsOnSuspend\": is \"yes\"; allowed are true and false"),
        ("keepAlive: 599s", "U:5:16: unit \"web\": key \"keepAlive\": is \"599s\"; allowed is a time from 10m to 24h"),
        (
            "keepAlive: 600",
            "U:5:16: unit \"web\": key \"keepAlive\": is \"600\"; allowed is a time from 10m to 24h; a time has a unit: ms, s, m or h"
        ),
        ("allowance: 0s", "U:5:16: unit \"web\": key \"allowance\": is \"0s\"; allowed is a time from 1s to 24h"),
        (
            "memory: {limit: 512}",
            "U:5:21: unit \"web\": key \"memory.limit\": is \"512\"; allowed is a size from 1M, such as 512M or 2G; without a unit these are bytes: did you mean 512M?"
        ),
        ("memory: {limt: 512M}", "U:5:14: unit \"web\": key \"memory\": the key \"limt\" is not known; did you mean \"limit\"?"),
        ("memory: {request: 2G, limit: 1G}", "U:5:13: unit \"web\": key \"memory\": requests 2 GiB, more than its limit of 1 GiB"),
        ("memory: 512M", "U:5:13: unit \"web\": key \"memory\": is \"512M\"; allowed is a map (key: value)"),
        ("keep_alive: 10m", "U:5:5: unit \"web\": the key \"keep_alive\" is not known; did you mean \"keepAlive\"?"),
        ("enviroment: {A: b}", "U:5:5: unit \"web\": the key \"enviroment\" is not known; did you mean \"environment\"?"),
        (
            "environment: {1A: b}",
            "U:5:23: unit \"web\": key \"environment.1A\": is not the name of a variable; allowed are letters, digits and _, the first not a digit"
        ),
        ("environment: {A: }", "U:5:22: unit \"web\": key \"environment.A\": is nothing; allowed is text, and \"\" for an empty one"),
        ("environment: {NOTIFY_SOCKET: x}", "U:5:34: unit \"web\": key \"environment.NOTIFY_SOCKET\": is set by the supervisor itself"),
        ("environment: {A: \"x\\0y\"}", "U:5:22: unit \"web\": key \"environment.A\": holds a zero byte, which no variable may"),
        ("directory: srv", "U:5:16: unit \"web\": key \"directory\": is \"srv\", which is not an absolute path"),
        ("directory: /srv/../etc", "U:5:16: unit \"web\": key \"directory\": is \"/srv/../etc\", which holds . or .. components"),
        ("process: 7", "U:4:5: unit \"web\": has command and process of the keys command, process and group; exactly one is needed"),
        ("dependencies: web", "U:5:19: unit \"web\": key \"dependencies\": is \"web\"; allowed is a list of units"),
        ("dependencies: [wob]", "U:5:20: unit \"web\": key \"dependencies\": the file has no unit \"wob\""),
        ("dependencies: [web]", "U:5:20: unit \"web\": key \"dependencies\": is a cycle: web -> web; leave one out"),
        ("{}: 1", "U:5:5: unit \"web\": a key is a map; allowed is text"),
        ("role: &r background", "U:5:11: \"&r\" is an anchor; anchors and aliases are not allowed; write the value in full, or quote text"),
        ("role: !!int 5", "U:5:11: the tag tag:yaml.org,2002:int is not allowed"),
    ])
    func `a wrong value of a unit is reported with place, value and allowed values`(line: String, problem: String) {
        #expect(unitProblems("command: [/bin/a]", line) == [problem])
    }

    @Test(arguments: [
        ("command: []", "is empty; it needs the path of a program"), ("command: [/a, [b]]", "has a list among its words; allowed is text"),
        ("command: server", "\"server\" is not searched for in PATH; write the path of the program, such as /usr/bin/server"),
        ("command: [/a, ~]", "has nothing among its words; allowed is text"),
        ("process: 1", "is \"1\"; allowed is the number of a process from 2 to 4194304"),
        ("group: ../x", "is \"../x\", which is not an absolute path"),
        ("role: background", "has none of the keys command, process and group; exactly one is needed"),
    ])
    func `a unit's origin is checked`(line: String, problem: String) {
        let found = unitProblems(line)
        #expect(found.count == 1 && found[0].hasSuffix(problem), "\(found)")
    }

    @Test(arguments: [
        ("process: 7\n    restart: always", "key \"restart\": is for units with a command; this unit is only observed"),
        ("command: [/a]\n    suspension: never\n    keepAlive: 10m", "key \"keepAlive\": has no meaning with suspension: never"),
        (
            "command: [/a]\n    exitsOnSuspend: true\n    keepAlive: 10m",
            "key \"keepAlive\": has no meaning with exitsOnSuspend: it is never suspended"
        ),
    ])
    func `keys that exclude each other are refused`(lines: String, problem: String) {
        let found = unitProblems(lines)
        #expect(found.count == 1 && found[0].hasSuffix(problem), "\(found)")
    }

    @Test(arguments: [
        ("", "U: the file is empty; write \"version: 1\" and \"units:\""),
        ("- a", "U:1:1: the file is a list; it must be a map with the keys version, policy and units"),
        ("version: 1", "U:1:1: the key \"units\" is missing"), ("units: {}", "U:1:1: the key \"version\" is missing; it is 1"),
        ("version: 2\nunits: {}", "U:1:10: key \"version\": is \"2\"; allowed is 1"),
        ("version: 1\nunits:", "U:2:7: key \"units\": is nothing; allowed is a map (key: value)"),
        (
            "version: 1\nunits: {}\npolicy: {pace: soon}",
            "U:3:16: key \"policy.pace\": is \"soon\"; allowed is a number or a time such as 250ms, 30s, 10m or 1h"
        ),
        ("version: 1\nunit: {}\nunits: {}", "U:2:1: the key \"unit\" is not known; did you mean \"units\"?"),
        ("version: 1\nunits: {a: 1, a: 2}", "U:2:9: the key \"a\" occurs twice, first in line 2; once is allowed"),
        (
            "version: 1\nunits: {.a: {}}",
            "U:2:13: \".a\" is not the name of a unit; allowed are 1 to 64 letters, digits, -, _ and ., the first a letter or digit"
        ),
        ("version: [1\nunits: {}", "U:2:6: the file is not YAML: while parsing a flow sequence, did not find expected ',' or ']'"),
        ("version: 1\n---\nunits: {}", "U:2:1: the file is not YAML: expected a single document in the stream, but found another document"),
    ])
    func `a wrong file as a whole is reported`(text: String, problem: String) {
        #expect(problems(text) == [problem])
    }

    @Test func `all problems are reported at once, duplicates among them, in the order of the file`() {
        let found = problems(
            """
            version: 1
            units:
              web:
                command: [/a]
                role: x
                command: [/b]
                importance: 5000
              queue:
                command: [/q]
                dependencies: [web, nobody]
              web:
                command: relative
              other:
                command: [/o]
                role: deferred
                role: background
                keepAliv: 10m
            """)
        #expect(found.count == 7, "\(found.joined(separator: "\n"))")
        #expect(found.map { $0.split(separator: ":")[1] } == ["5", "6", "7", "10", "11", "16", "17"], "\(found.joined(separator: "\n"))")
        #expect(found[4] == "U:11:3: the key \"web\" occurs twice, first in line 3; once is allowed")
    }

    @Test func `cycles of dependencies are reported with the path`() {
        let text =
            "version: 1\nunits:\n  a: {command: [/a], dependencies: [b]}\n  b: {command: [/b], dependencies: [c]}\n  c: {command: [/c], dependencies: [a, d]}\n  d: {command: [/d], dependencies: [d]}\n"
        let found = problems(text)
        #expect(found.count == 2 && found[0].hasSuffix("is a cycle: a -> b -> c -> a; leave one out") && found[1].contains("d -> d"), "\(found)")
        #expect(found[0].hasPrefix("U:5:37: unit \"c\": key \"dependencies\""))
    }

    @Test func `a chain of a thousand units is no cycle, and a thousand and one units are too many`() throws {
        func row(_ count: Int) -> String {
            "version: 1\nunits:\n" + (0..<count).map { "  u\($0): {command: [/u]\($0 + 1 < count ? ", dependencies: [u\($0 + 1)]" : "")}\n" }.joined()
        }
        #expect(try UnitsFile(row(1000)).units.count == 1000)
        #expect(problems(row(1001)).contains { $0.hasSuffix("the file has more than 1000 units") })
    }

    // MARK: Bombs

    @Test func `alias bombs are refused before an expansion`() {
        var bomb = "a0: &a0 [x, x]\n"
        for level in 1...60 { bomb += "a\(level): &a\(level) [*a\(level - 1), *a\(level - 1)]\n" }
        #expect(problems(bomb + "? *a60\n: 1\n").first?.contains("aliases are not allowed") == true)
        var small = "a0: &a0 [x, x]\n"
        for level in 1...7 { small += "a\(level): &a\(level) [*a\(level - 1), *a\(level - 1)]\n" }
        #expect(problems(small + "? *a7\n: 1\n").allSatisfy { $0.contains("is an anchor") })
    }

    @Test func `files that are too long, too deep or not text are refused`() {
        #expect(problems(String(repeating: "#", count: 1 << 20) + "\n").first == "U: the file has 1048577 bytes; allowed are at most 1048576")
        #expect(problems("version: " + String(repeating: "[", count: 500_000)).count == 1)
        #expect(problems("version: 1\nunits: \u{1}").first?.contains("the file is not YAML text") == true)
        #expect(throws: UnitsFileError.self) { try UnitsFile(path: "/dev/zero") }
        #expect(throws: UnitsFileError.self) { try UnitsFile(path: "/nonexistent/UNITS.yaml") }
    }

    @Test func `problems beyond a hundred are counted`() throws {
        let text = "version: 1\nunits:\n" + (0..<150).map { "  u\($0): {command: [/u], x: 1}\n" }.joined()
        let error = #expect(throws: UnitsFileError.self) { try UnitsFile(text) }
        #expect(error?.problems.count == 100 && error?.omitted == 50)
    }

    @Test func `no text makes the reader trap`() throws {
        let sample = Array(try example().utf8)
        let seed = usualSeed(20_261_121)
        var random = SeededGenerator(seed: seed)
        var refused = 0
        for _ in 0..<2000 {
            var text = sample
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                let place = Int.random(in: 0..<text.count, using: &random)
                switch Int.random(in: 0..<3, using: &random) {
                case 0: text[place] = "[]{}:,&*!|>'\"%@`#-? \n\tax0~".utf8.randomElement(using: &random)!
                case 1: text.removeSubrange(place..<min(text.count, place + Int.random(in: 1...20, using: &random)))
                default: text.insert(contentsOf: text[place..<min(text.count, place + 30)], at: place)
                }
                if text.isEmpty { text = sample }
            }
            if !problems(String(decoding: text, as: UTF8.self)).isEmpty { refused += 1 }
        }
        #expect(refused > 500, "seed \(seed): the property was exercised too seldom")
    }
}
