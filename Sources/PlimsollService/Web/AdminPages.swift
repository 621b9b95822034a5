public import Plimsoll
import PlimsollLifecycle

/// The HTTP pages of a service about the manager, independent of the web framework. An adapter converts requests to
/// questions and answers to responses.
///
/// | path | answer |
/// |---|---|
/// | `/healthz` | 200 for as long as the process answers; independent of any state |
/// | `/readyz` | 200, or 503 with the reason, by the life cycle |
/// | `/plimsoll` | `ManagerStatus` as JSON; `?actions=20` for the last 20 actions only |
/// | `/plimsoll/metrics` | the same as Prometheus' text |
/// | `/plimsoll/heap` | a census of the heap by Swift type as JSON; `?rows=60` for the 60 largest types |
/// | `/plimsoll/ui` | a page that draws the status |
/// | `POST /plimsoll/release`, `POST /plimsoll/simulate` | with `allowsChanges` only |
///
/// All pages are for operators: the status names caches, tasks and source files. Do not expose the pages to the
/// public; use a separate port or an access check.
///
/// Pages are served only for requests by an address, by `localhost`, or by a listed host name (`hosts`, the setting
/// `admin.hosts`). Other hosts get 421, so no page of another site can read the pages by DNS rebinding. For
/// other hosts, the two health checks answer with the status code alone.
public struct AdminPages: Sendable {
    /// Title of the page.
    public var title: String
    /// True to permit purges and simulated pressure over HTTP, for pages of the same origin.
    public var allowsChanges: Bool
    /// True to answer `/readyz` with 503 while the ladder quiesces: after shedding at the warning and critical levels
    /// was not enough. By default pressure never makes a service unready. Otherwise all instances would become unready
    /// at once, and the last one left would get all requests.
    public var isUnreadyWhenQuiescing: Bool
    /// Host names for which the pages are served, besides addresses and `localhost`: `"shop.internal"`, without a
    /// port. Names of the setting `admin.hosts` are added.
    public var hosts: [String]

    package enum Page: String, Sendable, CaseIterable {
        case health = "/healthz"
        case readiness = "/readyz"
        case status = "/plimsoll"
        case metrics = "/plimsoll/metrics"
        case heap = "/plimsoll/heap"
        case ui = "/plimsoll/ui"
        case release = "/plimsoll/release"
        case simulate = "/plimsoll/simulate"

        /// True if the page changes something.
        var isChange: Bool { self == .release || self == .simulate }

        /// The methods that the page answers. The heap's page does not answer `HEAD`: the headers alone are not worth a
        /// census.
        var methods: [String] { isChange ? ["POST"] : self == .heap ? ["GET"] : ["GET", "HEAD"] }

        /// True for checks by an orchestrator or load balancer. Such clients may name any host or none.
        var isCheck: Bool { self == .health || self == .readiness }
    }

    /// A request for a page, with the parts of `answer(path:method:query:host:origin:fetchSite:)`.
    package struct Question: Sendable {
        package var method: String
        package var query: [String: String]
        package var host: String?
        package var origin: String?
        package var fetchSite: String?

        package init(
            method: String = "GET", query: [String: String] = [:], host: String? = nil, origin: String? = nil,
            fetchSite: String? = nil
        ) {
            self.method = method
            self.query = query
            self.host = host
            self.origin = origin
            self.fetchSite = fetchSite
        }
    }

    /// The answer to a request.
    public struct Answer: Sendable, Hashable {
        public var status: Int
        public var contentType: String
        /// Further headers.
        public var headers: [String: String]
        public var body: String

        init(_ status: Int, _ body: String, type: String = "text/plain; charset=utf-8", headers: [String: String] = [:])
        {
            self.status = status
            self.body = body
            contentType = type
            // No cache stores the answer, no browser guesses the type, and no other site reads the content.
            self.headers = [
                "cache-control": "no-store", "x-content-type-options": "nosniff",
                "cross-origin-resource-policy": "same-origin",
                "referrer-policy": "no-referrer",
            ].merging(headers) { $1 }
        }
    }

    private let manager: ResourceManager
    private let heapPage: HeapPage
    private let totals = SteadyTotals()
    /// Host names from the settings of a service, in addition to `hosts`.
    var settingHosts: @Sendable () -> [String]

    /// Creates pages about a manager; by default changes are not permitted.
    public init(
        _ manager: ResourceManager, title: String = "Plimsoll", allowsChanges: Bool = false,
        isUnreadyWhenQuiescing: Bool = false, hosts: [String] = []
    ) {
        (self.manager, self.title, self.hosts, settingHosts) = (manager, title, hosts, { [] })
        heapPage = HeapPage(manager)
        (self.allowsChanges, self.isUnreadyWhenQuiescing) = (allowsChanges, isUnreadyWhenQuiescing)
    }

    /// Returns true if requests for `path` are served at any level: health checks and operator pages.
    public static func isExempt(path: Substring) -> Bool {
        path == Page.health.rawValue || path == Page.readiness.rawValue || path == Page.status.rawValue
            || path.hasPrefix(Page.status.rawValue + "/")
    }

    /// The paths of all pages, for the routes of an adapter.
    public static let paths = Page.allCases.map(\.rawValue)

    /// Returns the answer to a request; `nil` if no page has that path. For `HEAD` the answer has a body, which the
    /// adapter must omit.
    ///
    /// - Parameters:
    ///   - path: the path, without the query.
    ///   - method: the method of the request: `GET`, `HEAD`, `POST` or any other.
    ///   - query: the decoded query; for a repeated name, one of the values.
    ///   - host: the header `Host`, or HTTP/2's `:authority`. Empty if the request has none; several values are joined
    ///     by commas. Both cases are refused. With `nil` the adapter does not check the host: all pages are then
    ///     answered, and the adapter must prevent DNS rebinding.
    ///   - origin: the header `Origin`.
    ///   - fetchSite: the header `Sec-Fetch-Site`.
    public func answer(
        path: String, method: String = "GET", query: [String: String] = [:], host: String?, origin: String? = nil,
        fetchSite: String? = nil
    ) async -> Answer? {
        guard let page = Page(rawValue: path) else { return nil }
        return await answer(
            page, Question(method: method, query: query, host: host, origin: origin, fetchSite: fetchSite))
    }

    package func answer(_ page: Page, _ question: Question) async -> Answer {
        let allowed = page.methods
        guard allowed.contains(question.method) else {
            return Answer(
                405,
                "\(question.method.prefix(16)) is not allowed on \(page.rawValue); allowed is \(allowed.joined(separator: ", "))\n",
                headers: ["allow": allowed.joined(separator: ", ")])
        }
        let isTrusted = question.host.map { HostRule(hosts + settingHosts()).allows($0) } ?? true
        guard isTrusted || page.isCheck else {
            let host = printable(question.host ?? "", atMost: 120)
            return Answer(
                421,
                "refused: the host \"\(host)\" is not allowed; allowed are addresses, localhost and the setting admin.hosts\n"
            )
        }
        switch page {
        case .health: return Answer(200, "ok\n")
        case .readiness:
            let answer = readiness
            return isTrusted
                ? answer
                : Answer(answer.status, answer.status == 200 ? "ready\n" : "not ready\n", headers: answer.headers)
        case .status: return status(await manager.takeStatus(), question)
        case .metrics:
            let families = totals.families(await manager.takeStatus())
            return Answer(200, PrometheusText.render(families), type: PrometheusText.contentType)
        case .heap: return await heapPage.answer(question)
        case .ui: return StatusPage(title: title, allowsChanges: allowsChanges).answer
        case .release, .simulate:
            return await AdminChange(manager, isAllowed: allowsChanges).answer(page, question)
        }
    }

    private var readiness: Answer {
        let readiness = manager.lifecycle.readiness, extent = manager.lifecycle.pausables.extent()
        guard readiness.isReady else { return Answer(503, "\(readiness)\n", headers: ["retry-after": "5"]) }
        if isUnreadyWhenQuiescing, extent.share == .least {
            return Answer(
                503, "not ready: memory has stayed short although requests were shed\n", headers: ["retry-after": "10"])
        }
        return Answer(200, extent == .open ? "\(readiness)\n" : "\(readiness), shedding requests: \(extent)\n")
    }

    private func status(_ status: ManagerStatus, _ question: Question) -> Answer {
        var status = status
        if let text = question.query["actions"] {
            guard let most = Int(text), (0...256).contains(most) else {
                return Answer(400, "actions is \"\(text.prefix(32))\", allowed is 0...256\n")
            }
            status.actions = status.actions.suffix(most)
        }
        do {
            return Answer(200, try status.json(), type: "application/json")
        } catch {
            return Answer(500, "cannot write the status as JSON: \(error)\n")
        }
    }
}

/// The status as JSON. The only place that defines this format.
extension ManagerStatus {
    /// Returns the status as one line of JSON with a fixed order of keys. Numbers that JSON lacks are written as the
    /// texts `nan`, `inf` and `-inf`, as in the answers of the admin socket.
    ///
    /// - Throws: An error if the status cannot be encoded.
    public func json() throws -> String { try AdminJSON().text(self) }

    /// Decodes text that `json()` has written, in this version or another.
    ///
    /// - Throws: An error if the text is not JSON, or lacks keys that every version has.
    public init(json text: String) throws { self = try AdminJSON().value(text) }
}
