/// One request to an admin endpoint: a line of JSON, one flat object.
///
///     {"command":"purge","group":"images","upTo":"cheap","bytes":67108864}
///
/// A key that the command does not take is an error. A misspelled `bytes` must not purge everything.
package struct AdminRequest: Sendable, Hashable, Codable {
    package enum Command: String, Sendable, Hashable, Codable, CaseIterable {
        /// Returns the complete status of the manager.
        case status
        /// Lists the registered caches with their counts.
        case caches
        /// Lists background tasks.
        case tasks
        /// Explains the last actions and their reasons, in sentences.
        case explain
        /// Takes a census of the heap by type.
        case heap
        /// Sends `status` repeatedly, until another request or the end of the connection.
        case watch
        /// Makes purgeables release memory. A change.
        case purge
        /// Simulates a pressure level for a while. A change.
        case simulate
        /// Sets the limit of a cache. A change.
        case limit
        /// Brings the process to the foreground and has a request answered there (C74). A change.
        case activate
    }

    package var command: Command
    /// For `purge` and `limit`: the name of the purgeable. For `activate`: the name of the request.
    package var name: String?
    /// For `purge`: selects the purgeables of that group; names are joined by slashes.
    package var group: String?
    /// For `purge`: selects the purgeables that were registered with that tag.
    package var tag: String?
    /// For `purge`: the highest rebuild cost to select: `trivial`, `cheap`, `expensive` or `precious`.
    package var upTo: String?
    /// For `purge`: confirms a purge of everything. Required if no other parameter narrows the selection.
    package var all: Bool?
    /// For `purge`: the bytes to release, at least 1; by default all of the selection. For `limit`: the new limit.
    package var bytes: Int?
    /// For `simulate`: `normal`, `warning` or `critical`.
    package var level: String?
    /// For `simulate`: the duration in seconds, from 0.001 to 3600. Not allowed with `normal`, which ends a
    /// simulation.
    package var seconds: Double?
    /// For `watch`: milliseconds between two answers, from 100 to 60,000; 1000 by default.
    package var milliseconds: Int?
    /// For `explain`: the number of last actions to explain, from 1 to 256; all by default.
    package var last: Int?
    /// For `heap`: the number of the largest types to list, from 1 to 1000; 40 by default.
    package var rows: Int?
    /// For `activate`: the payload of the request, as text. The handler receives the UTF-8 bytes. Empty by default.
    package var payload: String?

    /// Creates a request without parameters; set the parameters afterwards.
    package init(_ command: Command) { self.command = command }
}

extension AdminRequest {
    enum CodingKeys: String, CodingKey, CaseIterable {
        case command, name, group, tag, upTo, all, bytes, level, seconds, milliseconds, last, rows, payload
    }

    private struct AnyKey: CodingKey {
        var stringValue: String
        var intValue: Int? { nil }
        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }

    /// Decodes a request and rejects unknown keys.
    ///
    /// - Throws: `AdminRefusal`, and no other error.
    package init(from decoder: any Decoder) throws {
        guard let fields = try? decoder.container(keyedBy: AnyKey.self) else {
            throw AdminRefusal(.malformed, "a request is a JSON object, for example \(Self.example)")
        }
        func value<Value: Decodable>(_ key: CodingKeys, _ meaning: String) throws -> Value? {
            let key = AnyKey(stringValue: key.rawValue)
            guard fields.contains(key) else { return nil }
            do { return try fields.decode(Value.self, forKey: key) } catch {
                throw AdminRefusal(.malformed, "\"\(key.stringValue)\" must be \(meaning)")
            }
        }
        guard let word: String = try value(.command, "text") else {
            throw AdminRefusal(.malformed, "a request needs a \"command\", for example \(Self.example)")
        }
        guard let command = Command(rawValue: word) else {
            throw AdminRefusal(
                .malformed,
                "unknown command \"\(AdminRefusal.quoted(word))\"; known commands are \(Command.allCases.map(\.rawValue).joined(separator: ", "))"
            )
        }
        for key in fields.allKeys.map(\.stringValue).sorted()
        where key != "command" && !command.parameters.contains(where: { $0.rawValue == key }) {
            let takes = command.parameters.map { "\"\($0.rawValue)\"" }.joined(separator: ", ")
            throw AdminRefusal(
                .malformed,
                "\(word) does not take \"\(AdminRefusal.quoted(key))\"; it takes \(takes.isEmpty ? "nothing" : takes)")
        }
        self.command = command
        (name, group, tag) = (try value(.name, "text"), try value(.group, "text"), try value(.tag, "text"))
        (upTo, level) = (try value(.upTo, "text"), try value(.level, "text"))
        all = try value(.all, "true or false")
        (bytes, milliseconds, last) = (
            try value(.bytes, "a whole number"), try value(.milliseconds, "a whole number"),
            try value(.last, "a whole number")
        )
        rows = try value(.rows, "a whole number")
        seconds = try value(.seconds, "a number")
        payload = try value(.payload, "text")
    }

    private static let example = #"{"command":"status"}"#
}

extension AdminRequest.Command {
    /// The keys that the command accepts.
    var parameters: [AdminRequest.CodingKeys] {
        switch self {
        case .status, .caches, .tasks: []
        case .explain: [.last]
        case .heap: [.rows]
        case .watch: [.milliseconds]
        case .purge: [.name, .group, .tag, .upTo, .all, .bytes]
        case .simulate: [.level, .seconds]
        case .limit: [.name, .bytes]
        case .activate: [.name, .payload]
        }
    }

    /// True if the command changes anything.
    package var isChange: Bool {
        switch self {
        case .status, .caches, .tasks, .explain, .heap, .watch: false
        case .purge, .simulate, .limit, .activate: true
        }
    }

    /// True if the answer may take long, so that another thread than that of the sockets carries out the command.
    var isSlow: Bool { isChange || self == .heap }

    /// Least time for which a client waits for the answer. Purgeables and a large heap may take long, also those of
    /// requests before this one, and an activation may take `AdminCommandHandler.activationPatience`.
    var patience: Duration { isSlow ? .seconds(60) : .zero }
}

/// The reason why a request was not carried out.
struct AdminRefusal: Error, Sendable, Hashable {
    var code: AdminAnswer.Code
    /// The request, the reason, and the allowed values.
    var sentence: String

    init(_ code: AdminAnswer.Code, _ sentence: String) { (self.code, self.sentence) = (code, sentence) }

    /// Returns text of a client, shortened for use in a sentence.
    static func quoted(_ text: String) -> String { text.count <= 40 ? text : text.prefix(40) + "…" }
}
