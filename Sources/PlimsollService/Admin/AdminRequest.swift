/// One request to an admin endpoint: a line of JSON, one flat object.
///
///     {"command":"purge","group":"images","upTo":"cheap","bytes":67108864}
///
/// A key that the command doesn't know is refused, not passed over: who misspells `bytes` must not have everything purged.
public struct AdminRequest: Sendable, Hashable, Codable {
    /// What is asked.
    public enum Command: String, Sendable, Hashable, Codable, CaseIterable {
        /// All that the manager knows.
        case status
        /// What is registered, with its counts.
        case caches
        /// Background tasks.
        case tasks
        /// The last actions and why they were taken, in sentences.
        case explain
        /// `status` again and again, until another request or the end of the connection.
        case watch
        /// Has holders let go of memory. A change.
        case purge
        /// Pretends a level for a while. A change.
        case simulate
        /// Sets the limit of a cache. A change.
        case limit
        /// Brings the process to the front and has a request answered there (C74). A change.
        case activate
    }

    public var command: Command
    /// Of `purge` and `limit`: the holder of that name; of `activate`: what is asked for.
    public var name: String?
    /// Of `purge`: what is in that group, names joined by slashes.
    public var group: String?
    /// Of `purge`: what was registered with that tag.
    public var tag: String?
    /// Of `purge`: only what costs no more to make again: `trivial`, `cheap`, `expensive` or `precious`.
    public var upTo: String?
    /// Of `purge`: that everything is meant. Needed where nothing else narrows it.
    public var all: Bool?
    /// Bytes to let go of, at least 1, by default all of what is selected; of `limit`, the most to hold.
    public var bytes: Int?
    /// Of `simulate`: `normal`, `warning` or `critical`.
    public var level: String?
    /// Of `simulate`: how long, from 0.001 to 3600. Not with `normal`, which ends a rehearsal.
    public var seconds: Double?
    /// Of `watch`: time between two answers, from 100 to 60,000; 1000 by default.
    public var milliseconds: Int?
    /// Of `explain`: how many actions, the last ones; from 1 to 256; all by default.
    public var last: Int?
    /// Of `activate`: what belongs to the request, as text; its UTF-8 bytes are handed on. Empty by default.
    public var payload: String?

    /// A request without parameters; set what its command takes.
    public init(_ command: Command) { self.command = command }
}

extension AdminRequest {
    enum CodingKeys: String, CodingKey, CaseIterable { case command, name, group, tag, upTo, all, bytes, level, seconds, milliseconds, last, payload }

    private struct AnyKey: CodingKey {
        var stringValue: String
        var intValue: Int? { nil }
        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }

    /// - Throws: `AdminRefusal`, and nothing else.
    public init(from decoder: any Decoder) throws {
        guard let fields = try? decoder.container(keyedBy: AnyKey.self) else {
            throw AdminRefusal(.malformed, "a request is a JSON object, for example \(Self.example)")
        }
        func value<Value: Decodable>(_ key: CodingKeys, _ meaning: String) throws -> Value? {
            let key = AnyKey(stringValue: key.rawValue)
            guard fields.contains(key) else { return nil }
            do { return try fields.decode(Value.self, forKey: key) } catch {
                throw AdminRefusal(.malformed, "\"\(key.stringValue)\" is to be \(meaning)")
            }
        }
        guard let word: String = try value(.command, "text") else {
            throw AdminRefusal(.malformed, "a request has a \"command\", for example \(Self.example)")
        }
        guard let command = Command(rawValue: word) else {
            throw AdminRefusal(
                .malformed,
                "there is no command \"\(AdminRefusal.quoted(word))\"; there are \(Command.allCases.map(\.rawValue).joined(separator: ", "))")
        }
        for key in fields.allKeys.map(\.stringValue).sorted() where key != "command" && !command.parameters.contains(where: { $0.rawValue == key }) {
            let takes = command.parameters.map { "\"\($0.rawValue)\"" }.joined(separator: ", ")
            throw AdminRefusal(.malformed, "\(word) does not take \"\(AdminRefusal.quoted(key))\"; it takes \(takes.isEmpty ? "nothing" : takes)")
        }
        self.command = command
        (name, group, tag) = (try value(.name, "text"), try value(.group, "text"), try value(.tag, "text"))
        (upTo, level) = (try value(.upTo, "text"), try value(.level, "text"))
        all = try value(.all, "true or false")
        (bytes, milliseconds, last) = (
            try value(.bytes, "a whole number"), try value(.milliseconds, "a whole number"), try value(.last, "a whole number")
        )
        seconds = try value(.seconds, "a number")
        payload = try value(.payload, "text")
    }

    private static let example = #"{"command":"status"}"#
}

extension AdminRequest.Command {
    /// What it takes.
    var parameters: [AdminRequest.CodingKeys] {
        switch self {
        case .status, .caches, .tasks: []
        case .explain: [.last]
        case .watch: [.milliseconds]
        case .purge: [.name, .group, .tag, .upTo, .all, .bytes]
        case .simulate: [.level, .seconds]
        case .limit: [.name, .bytes]
        case .activate: [.name, .payload]
        }
    }

    /// Whether it changes anything.
    public var isChange: Bool {
        switch self {
        case .status, .caches, .tasks, .explain, .watch: false
        case .purge, .simulate, .limit, .activate: true
        }
    }
}

/// Why a request was not carried out.
struct AdminRefusal: Error, Sendable, Hashable {
    var code: AdminAnswer.Code
    /// What was asked, why not, what is allowed.
    var sentence: String

    init(_ code: AdminAnswer.Code, _ sentence: String) { (self.code, self.sentence) = (code, sentence) }

    /// What somebody sent, short enough for a sentence.
    static func quoted(_ text: String) -> String { text.count <= 40 ? text : text.prefix(40) + "…" }
}
