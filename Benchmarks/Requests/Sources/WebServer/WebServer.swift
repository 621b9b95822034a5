import Foundation
import Hummingbird
import Logging

/// A note that a client has left.
struct Note: Sendable {
    var author: String
    var text: String
    var at: Date
}

/// The notes of all clients.
actor Notes {
    private var notes: [String: [Note]] = [:]

    func add(_ note: Note) -> Int {
        notes[note.author, default: []].append(note)
        return notes[note.author]?.count ?? 0
    }
}

/// An ordinary web server, which keeps the notes of clients.
@main
struct WebServer {
    static func main() async throws {
        let notes = Notes(), router = Router()
        router.get("/note/:author") { _, context in
            let author = try context.parameters.require("author")
            let note = Note(author: author, text: "a note of \(author), which takes some room", at: Date())
            return "\(await notes.add(note))\n"
        }
        let application = Application(
            router: router, configuration: .init(address: .hostname("127.0.0.1", port: 0)),
            onServerRunning: { channel in
                print("listening \(channel.localAddress?.port ?? 0) \(getpid())")
                fflush(nil)
            }, logger: Logger(label: "notes") { _ in SwiftLogNoOpLogHandler() })
        try await application.runService()
    }
}
