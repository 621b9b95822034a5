import Plimsoll
import PlimsollLifecycle

/// Carries out changes that an operator requests over HTTP, if changes are allowed and the request comes from a page
/// of this server.
struct AdminChange {
    private let manager: ResourceManager
    private let handler: AdminCommandHandler

    init(_ manager: ResourceManager, isAllowed: Bool) {
        self.manager = manager
        handler = AdminCommandHandler(manager: manager, allowsChanges: isAllowed, counts: { .init() })
    }

    func answer(_ page: AdminPages.Page, _ question: AdminPages.Question) async -> AdminPages.Answer {
        guard handler.allowsChanges else {
            return .init(
                403, "cannot change anything because these pages are read-only; set AdminPages.allowsChanges\n")
        }
        guard Self.isOfOurs(question) else {
            return .init(
                403,
                "refused: the header Origin must name this server, \"http://HOST\" or \"https://HOST\" with the HOST of the request\n"
            )
        }
        do throws(AdminRefusal) {
            let request = try Self.request(page, question.query)
            try handler.check(request)
            guard page == .release else {
                let (level, duration) = try handler.simulate(request)
                return .init(200, level == .normal ? "normal\n" : "\(level) for \(duration)\n")
            }
            // Without blocking the thread of the web server for as long as the purgeables take.
            let holders = await manager.takeStatus().holders
            let (selection, target) = try handler.purgeTarget(request, among: holders)
            return .init(200, await manager.release(target, from: selection).description + "\n")
        } catch {
            return .init(Self.status(of: error.code), "\(error.sentence)\n")
        }
    }

    /// Returns the request of the admin protocol that a page and its query mean.
    ///
    /// `release` without a selection releases everything. `simulate` takes 5 s by default.
    private static func request(_ page: AdminPages.Page, _ query: [String: String]) throws(AdminRefusal) -> AdminRequest
    {
        var request = AdminRequest(page == .release ? .purge : .simulate)
        // As on the admin socket: a misspelled `bytes` must not release everything.
        let known = request.command.parameters.map(\.rawValue)
        if let unknown = query.keys.sorted().first(where: { !known.contains($0) }) {
            let takes = known.map { "\"\($0)\"" }.joined(separator: ", ")
            throw AdminRefusal(
                .malformed, "\(page.rawValue) does not take \"\(AdminRefusal.quoted(unknown))\"; it takes \(takes)")
        }
        if page == .release {
            (request.name, request.group, request.tag, request.upTo) = (
                query["name"], query["group"], query["tag"], query["upTo"]
            )
            request.bytes = try number(query["bytes"], "bytes")
            if let all = query["all"] {
                guard all == "true" else {
                    throw AdminRefusal(.malformed, "\"all\" is \"\(AdminRefusal.quoted(all))\"; allowed is true")
                }
                request.all = true
            } else {
                request.all =
                    (request.name ?? request.group ?? request.tag ?? request.upTo) == nil && request.bytes == nil
            }
        } else {
            request.level = query["level"]
            if query["level"] != "\(PressureLevel.normal)" {
                request.seconds = Double(try number(query["seconds"], "seconds") ?? 5)
            }
        }
        return request
    }

    private static func number(_ text: String?, _ key: String) throws(AdminRefusal) -> Int? {
        guard let text else { return nil }
        guard let number = Int(text) else {
            throw AdminRefusal(.malformed, "\"\(key)\" is \"\(AdminRefusal.quoted(text))\"; allowed is a whole number")
        }
        return number
    }

    private static func status(of code: AdminAnswer.Code) -> Int {
        switch code {
        case .malformed: 400
        case .readOnly, .forbidden: 403
        case .absent: 404
        case .busy, .failed: 503
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
}

extension QuiesceExtent {
    /// The row of a shedding policy's table; `nil` if no request is admitted.
    var row: Int? {
        switch profile {
        case .paused: nil
        case .background: Int(Share.least.rawValue)
        case .foreground: Int(share.rawValue)
        }
    }
}
