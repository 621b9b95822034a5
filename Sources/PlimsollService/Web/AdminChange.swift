import Plimsoll
import PlimsollLifecycle

/// Carries out changes that an operator requests over HTTP, if changes are allowed and the request comes from a page
/// of this server.
struct AdminChange {
    private let manager: ResourceManager
    private let isAllowed: Bool

    init(_ manager: ResourceManager, isAllowed: Bool) {
        self.manager = manager
        self.isAllowed = isAllowed
    }

    func answer(_ page: AdminPages.Page, _ question: AdminPages.Question) async -> AdminPages.Answer {
        guard isAllowed else {
            return .init(403, "nothing can be changed here: these pages only read (AdminPages.Options.allowsChanges)\n")
        }
        guard Self.isOfOurs(question) else {
            return .init(
                403,
                "refused: the header Origin must name this very server, \"http://HOST\" or \"https://HOST\" with the HOST that was asked\n"
            )
        }
        do {
            return .init(200, page == .release ? try await release(question.query) : try simulate(question.query))
        } catch {
            return .init(400, "\(error.description)\n")
        }
    }

    /// Returns true if the request comes from a page of this server, as reported by the browser.
    ///
    /// A page of another site can make a browser send a `POST` here, but under the origin of that site. Such an
    /// origin equals ours only if the host name resolves to this machine; `HostRule` refuses such names earlier.
    /// Clients other than browsers can claim any origin. Only a check of the application stops those clients.
    static func isOfOurs(_ question: AdminPages.Question) -> Bool {
        guard let origin = question.origin, let host = question.host, !host.isEmpty else { return false }
        guard question.fetchSite == nil || question.fetchSite == "same-origin" else { return false }
        return origin == "http://" + host || origin == "https://" + host
    }

    private struct Mistake: Error, CustomStringConvertible {
        var description: String
    }

    private func release(_ query: [String: String]) async throws(Mistake) -> String {
        var selection = PurgeableSelection.all, target = Int.max
        if let name = query["name"] { selection = .named(name) }
        if let text = query["bytes"] {
            guard let bytes = Int(text), bytes > 0 else {
                throw Mistake(description: "bytes is \"\(text.prefix(32))\", allowed is a whole number from 1")
            }
            target = bytes
        }
        return await manager.release(target, from: selection).description + "\n"
    }

    private func simulate(_ query: [String: String]) throws(Mistake) -> String {
        guard let level = query["level"].flatMap({ PressureLevel(name: $0) }) else {
            throw Mistake(
                description: "level is \"\(query["level"]?.prefix(32) ?? "")\", allowed is normal, warning or critical")
        }
        guard let seconds = Int(query["seconds"] ?? "5"), (1...300).contains(seconds) else {
            throw Mistake(description: "seconds is \"\(query["seconds"]?.prefix(32) ?? "")\", allowed is 1...300")
        }
        manager.simulate(level, for: .seconds(seconds))
        return "\(level) for \(seconds) s\n"
    }
}

/// A `QuiesceExtent` packed into one word. 0 is `open`.
enum ExtentWord {
    static let open: UInt16 = 0

    static func bits(_ extent: QuiesceExtent) -> UInt16 {
        UInt16(extent.profile.rawValue) | UInt16(extent.share.rawValue) << 4 | (extent.isHeld ? 256 : 0)
    }

    static func read(_ bits: UInt16) -> QuiesceExtent {
        QuiesceExtent(
            profile: .init(rawValue: UInt8(bits & 15)) ?? .paused,
            share: .init(rawValue: UInt8(bits >> 4 & 15)) ?? .least, isHeld: bits & 256 != 0)
    }

    /// Returns the row of the policy's table; `nil` if no request is admitted.
    static func row(_ bits: UInt16) -> Int? {
        switch read(bits).profile {
        case .paused: nil
        case .background: Int(QuiesceExtent.Share.least.rawValue)
        case .foreground: Int(bits >> 4 & 15)
        }
    }
}
