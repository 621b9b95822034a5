public import Plimsoll

/// What a service tells about itself over HTTP, for any web framework: an adapter passes questions on and answers back.
///
/// | path | answer |
/// |---|---|
/// | `/healthz` | 200 for as long as the process answers; it depends on nothing |
/// | `/readyz` | 200, or 503 with the reason, by the life cycle |
/// | `/plimsoll` | `ManagerStatus` as JSON; `?actions=20` for the last 20 actions only |
/// | `/plimsoll/metrics` | the same as Prometheus' text |
/// | `/plimsoll/ui` | a page that draws it |
/// | `POST /plimsoll/release`, `POST /plimsoll/simulate` | with `allowsChanges` only |
///
/// All of it is for operators: the status names caches, tasks and files of the source. Keep it off what strangers reach, on a port or behind a check of your own.
///
/// Pages are answered where they are asked for by an address, by `localhost`, or by a name on the list of hosts (`Options.hosts`, the setting `admin.hosts`); other
/// hosts get 421. So no page of another site reads them by DNS rebinding. The two checks of health tell other hosts their status alone.
public struct AdminPages: Sendable {
    /// What is told, and what may be done.
    public struct Options: Sendable {
        /// What the service is called on the page.
        public var title: String
        /// Whether memory may be released and pressure rehearsed over HTTP, by a page of the same origin.
        public var allowsChanges: Bool
        /// Whether `/readyz` says no while the ladder quiesces: after a warning and a critical level have shed requests and that was not enough. By default
        /// pressure never makes a service unready: every instance would be at once, and the last one left gets all requests.
        public var isUnreadyWhenQuiescing: Bool
        /// Names by which the pages may be asked for, besides addresses and `localhost`: `"shop.internal"`, without a port. Those of the setting `admin.hosts` come
        /// on top.
        public var hosts: [String]

        /// Reading only.
        public init(title: String = "Plimsoll", allowsChanges: Bool = false, isUnreadyWhenQuiescing: Bool = false, hosts: [String] = []) {
            self.hosts = hosts
            self.title = title
            self.allowsChanges = allowsChanges
            self.isUnreadyWhenQuiescing = isUnreadyWhenQuiescing
        }
    }

    /// What these pages are.
    public enum Page: String, Sendable, CaseIterable {
        case health = "/healthz"
        case readiness = "/readyz"
        case status = "/plimsoll"
        case metrics = "/plimsoll/metrics"
        case ui = "/plimsoll/ui"
        case release = "/plimsoll/release"
        case simulate = "/plimsoll/simulate"

        /// Whether it changes something.
        var isChange: Bool { self == .release || self == .simulate }

        /// Whether an orchestrator or a balancer asks for it, which may name any host or none.
        var isCheck: Bool { self == .health || self == .readiness }
    }

    /// A request for a page.
    public struct Question: Sendable {
        /// `GET`, `HEAD`, `POST` or whatever came.
        public var method: String
        /// What stands behind the question mark, decoded; of names that come twice, either.
        public var query: [String: String]
        /// The header `Host`, or HTTP/2's `:authority`: empty where the request has none, and of several all, separated by commas; both are refused.
        ///
        /// `nil` says that the adapter does not look. Then all pages are answered, and DNS rebinding is the adapter's to prevent.
        public var host: String?
        /// The header `Origin`.
        public var origin: String?
        /// The header `Sec-Fetch-Site`.
        public var fetchSite: String?

        /// A request with these parts.
        public init(method: String = "GET", query: [String: String] = [:], host: String? = nil, origin: String? = nil, fetchSite: String? = nil) {
            self.method = method
            self.query = query
            self.host = host
            self.origin = origin
            self.fetchSite = fetchSite
        }
    }

    /// What to answer.
    public struct Answer: Sendable, Hashable {
        public var status: Int
        public var contentType: String
        /// Further headers.
        public var headers: [String: String]
        public var body: String

        init(_ status: Int, _ body: String, type: String = "text/plain; charset=utf-8", headers: [String: String] = [:]) {
            self.status = status
            self.body = body
            contentType = type
            // Nobody keeps it, guesses its type or reads it from another site.
            self.headers = [
                "cache-control": "no-store", "x-content-type-options": "nosniff", "cross-origin-resource-policy": "same-origin",
                "referrer-policy": "no-referrer",
            ].merging(headers) { $1 }
        }
    }

    private let manager: ResourceManager
    /// Names of hosts from the settings of a service, besides those of the options.
    private let hosts: @Sendable () -> [String]
    /// What is told, and what may be done.
    public let options: Options

    /// Pages about a manager.
    public init(_ manager: ResourceManager, _ options: Options = Options()) {
        self.manager = manager
        self.options = options
        hosts = { [] }
    }

    /// Pages about the manager of a service, also answered for the hosts of its settings (`ServiceSettings.adminHosts`).
    public init(_ service: ResourceService, _ options: Options = Options()) {
        manager = service.manager
        self.options = options
        hosts = { service.settings.adminHosts }
    }

    /// Whether requests for `path` are to be served whatever the level: checks of health, and what operators look at.
    public static func isExempt(path: Substring) -> Bool {
        path == Page.health.rawValue || path == Page.readiness.rawValue || path == Page.status.rawValue || path.hasPrefix(Page.status.rawValue + "/")
    }

    /// The answer to a request for `page`, with a body also for `HEAD`, whose adapter leaves it out.
    public func answer(_ page: Page, _ question: Question) async -> Answer {
        let allowed = page.isChange ? ["POST"] : ["GET", "HEAD"]
        guard allowed.contains(question.method) else {
            return Answer(
                405, "\(question.method.prefix(16)) is not allowed on \(page.rawValue); allowed is \(allowed.joined(separator: ", "))\n",
                headers: ["allow": allowed.joined(separator: ", ")])
        }
        let isTrusted = question.host.map { HostRule(options.hosts + hosts()).allows($0) } ?? true
        guard isTrusted || page.isCheck else {
            let host = printable(question.host ?? "", atMost: 120)
            return Answer(421, "refused: the host \"\(host)\" was asked for; allowed are addresses, localhost and the setting admin.hosts\n")
        }
        switch page {
        case .health: return Answer(200, "ok\n")
        case .readiness:
            let answer = readiness
            return isTrusted ? answer : Answer(answer.status, answer.status == 200 ? "ready\n" : "not ready\n", headers: answer.headers)
        case .status: return status(await manager.takeStatus(), question)
        case .metrics: return Answer(200, PrometheusText.render(await manager.takeStatus()), type: PrometheusText.contentType)
        case .ui: return StatusPage(title: options.title, allowsChanges: options.allowsChanges).answer
        case .release, .simulate: return await AdminChange(manager, isAllowed: options.allowsChanges).answer(page, question)
        }
    }

    private var readiness: Answer {
        let readiness = manager.lifecycle.readiness, extent = manager.lifecycle.pausables.extent()
        guard readiness.isReady else { return Answer(503, "\(readiness)\n", headers: ["retry-after": "5"]) }
        if options.isUnreadyWhenQuiescing, extent.share == .least {
            return Answer(503, "not ready: memory has stayed short although requests were shed\n", headers: ["retry-after": "10"])
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
            return Answer(200, try StatusJSON.encode(status), type: "application/json")
        } catch {
            return Answer(500, "the status can't be written as JSON: \(error)\n")
        }
    }
}
