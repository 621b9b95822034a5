import Foundation
import TestSupport
import Testing

/// The layering of rooms, the folders of a module: a room uses only rooms on the floors below. docs/ARCHITECTURE.md has
/// the one list of floors.
@Suite(.needs(TidyTests.hasSources, "the sources are not at hand")) struct LayeringTests {
    private static let house = (try? String(contentsOf: TidyTests.root.appendingPathComponent("docs/ARCHITECTURE.md"), encoding: .utf8)) ?? ""

    @Test func `no room uses a type of a room above`() throws {
        let modules = Floors.modules(in: Self.house)
        #expect(modules.map(\.folder).contains("Sources/Plimsoll") && modules.count >= 7, "the floors were not found")
        for module in modules {
            let sources = TidyTests.sources(module.folder)
            #expect(!sources.isEmpty, "\(module.folder)")
            let room = TidyTests.root.appendingPathComponent(module.folder).path + "/"
            let files = sources.map { Floors.File(path: String($0.path.dropFirst(room.count)), text: $0.text) }
            for problem in module.problems(in: files) { Issue.record("\(problem)") }
        }
    }

    @Test func `every module with rooms has floors in the documentation`() throws {
        let named = Set(Floors.modules(in: Self.house).map(\.folder))
        let folders = try FileManager.default.contentsOfDirectory(
            at: TidyTests.root.appendingPathComponent("Sources"), includingPropertiesForKeys: [.isDirectoryKey])
        for folder in folders where !named.contains("Sources/" + folder.lastPathComponent) {
            let rooms = try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: [.isDirectoryKey])
                .filter { $0.pathExtension.isEmpty && $0.lastPathComponent != "include" && $0.hasDirectoryPath }
            #expect(rooms.count < 2, "\(folder.lastPathComponent) has \(rooms.map(\.lastPathComponent)), and no floors in docs/ARCHITECTURE.md")
        }
    }

    @Test func `an upward reference is found in code, and none in comments and texts`() {
        let module = Floors(folder: "Sources/House", rooms: ["Attic", "Cellar"])
        let attic = Floors.File(path: "Attic/Roof.swift", text: "struct Roof { let wine = Wine() }\nenum Key { struct Hidden {} }")
        let cellar = """
            struct Wine {
                /// Lies below the Roof.
                let label = "under the Roof, \\(number)"  // Roof
                struct Roofing {}
            }
            """
        #expect(module.problems(in: [attic, .init(path: "Cellar/Wine.swift", text: cellar)]) == [])
        let upwards = Floors.File(path: "Cellar/Rack.swift", text: "struct Rack { func f(_ roof: Roof) {} }")
        #expect(
            module.problems(in: [attic, upwards]) == [
                "Sources/House/Cellar/Rack.swift uses Roof of Attic, a room above: move one of them, or have Cellar ask for what it needs"
            ])
        let text = Floors.File(path: "Cellar/Rack.swift", text: "let rack = \"\\(Roof.self)\"")
        #expect(module.problems(in: [attic, text]).count == 1, "an interpolation is code")
        #expect(
            module.problems(in: [.init(path: "Hall/Door.swift", text: "")]) == [
                "Sources/House/Hall is on no floor: docs/ARCHITECTURE.md does not name the room"
            ])
    }

    @Test func `the floors are read from the picture`() {
        let picture = """
            Prose.
            ```
            Sources/House
              Attic       from the roof
              Cellar      to the ground
            Sources/Shed
              Tools       one room
            Benchmarks/Yard
              Well        deep
            ```
            """
        #expect(
            Floors.modules(in: picture) == [
                Floors(folder: "Sources/House", rooms: ["Attic", "Cellar"]), Floors(folder: "Sources/Shed", rooms: ["Tools"]),
                Floors(folder: "Benchmarks/Yard", rooms: ["Well"]),
            ])
    }
}

/// The rooms of a module from the top floor down.
struct Floors: Hashable {
    struct File {
        /// The path below the module's folder.
        var path: String
        var text: String

        var room: String { path.contains("/") ? String(path.prefix { $0 != "/" }) : "." }
    }

    /// The path below the package's root.
    var folder: String
    var rooms: [String]

    /// Returns the modules that a text draws: a line `Sources/MODULE` or `Benchmarks/MODULE`, then an indented line for
    /// each room, with the top floor first.
    static func modules(in text: String) -> [Floors] {
        var modules: [Floors] = [], isDrawn = false
        for line in text.split(separator: "\n") {
            if line.hasPrefix("Sources/") || line.hasPrefix("Benchmarks/") {
                modules.append(Floors(folder: line.prefix { $0 != " " }.description, rooms: []))
                isDrawn = true
            } else if isDrawn, line.hasPrefix("  "), let room = line.split(separator: " ").first {
                modules[modules.count - 1].rooms.append(String(room))
            } else {
                isDrawn = false
            }
        }
        return modules
    }

    /// Returns a sentence for each reference from a room to a room above, and for each room that is on no floor.
    ///
    /// A reference is the name of a type that one room declares at the top level of its files.
    func problems(in files: [File]) -> [String] {
        let floors = Dictionary(uniqueKeysWithValues: rooms.reversed().enumerated().map { ($1, $0) })
        let unknown = Set(files.map(\.room)).filter { floors[$0] == nil }.sorted()
        var owners: [String: Set<String>] = [:]
        let codes = files.map { (file: $0, code: SwiftNames($0.text)) }
        for (file, code) in codes { for type in code.declared { owners[type, default: []].insert(file.room) } }
        var problems = unknown.map { "\(folder)/\($0) is on no floor: docs/ARCHITECTURE.md does not name the room" }
        for (file, code) in codes {
            guard let floor = floors[file.room] else { continue }
            for type in code.used.sorted() {
                guard let owner = owners[type], owner.count == 1, let room = owner.first, let other = floors[room], other > floor else { continue }
                problems.append(
                    "\(folder)/\(file.path) uses \(type) of \(room), a room above: move one of them, or have \(file.room) ask for what it needs")
            }
        }
        return problems
    }
}

/// The names of types in a Swift source: those declared at the top level, and all that the code mentions.
struct SwiftNames {
    private(set) var declared: Set<String> = []
    private(set) var used: Set<String> = []

    private let bytes: [UInt8]
    private var place = 0
    private var depth = 0
    private var last = ""

    init(_ text: String) {
        bytes = Array(text.utf8) + [0, 0, 0]
        read(untilParenthesis: false)
    }

    private static let declarations: Set<String> = ["class", "struct", "enum", "protocol", "actor", "typealias"]

    /// Reads code to the end, or to the parenthesis that closes an interpolation.
    private mutating func read(untilParenthesis: Bool) {
        var open = 0
        while bytes[place] != 0 {
            let byte = bytes[place]
            switch byte {
            case UInt8(ascii: "/") where bytes[place + 1] == UInt8(ascii: "/"):
                while bytes[place] != 0, bytes[place] != UInt8(ascii: "\n") { place += 1 }
            case UInt8(ascii: "\""): readText()
            case UInt8(ascii: "{"):
                depth += 1
                place += 1
            case UInt8(ascii: "}"):
                depth -= 1
                place += 1
            case UInt8(ascii: "("):
                open += 1
                place += 1
            case UInt8(ascii: ")"):
                place += 1
                if untilParenthesis, open == 0 { return }
                open -= 1
            case _ where Self.isLetter(byte): readName()
            default: place += 1
            }
        }
    }

    private mutating func readName() {
        let start = place
        while Self.isLetter(bytes[place]) || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(bytes[place]) { place += 1 }
        let isType = (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(bytes[start])
        let name = String(decoding: bytes[start..<place], as: UTF8.self)
        if isType {
            used.insert(name)
            if depth == 0, Self.declarations.contains(last) { declared.insert(name) }
        }
        last = name
    }

    /// Reads a text, and the code of its interpolations.
    private mutating func readText() {
        let quote = UInt8(ascii: "\""), isLong = bytes[place + 1] == quote && bytes[place + 2] == quote
        place += isLong ? 3 : 1
        while bytes[place] != 0 {
            if bytes[place] == UInt8(ascii: "\\") {
                let isCode = bytes[place + 1] == UInt8(ascii: "(")
                place += 2
                if isCode { read(untilParenthesis: true) }
            } else if bytes[place] == quote, !isLong || bytes[place + 1] == quote && bytes[place + 2] == quote {
                place += isLong ? 3 : 1
                return
            } else {
                place += 1
            }
        }
    }

    private static func isLetter(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte) || (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) || byte == UInt8(ascii: "_")
    }
}
