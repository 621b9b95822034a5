// The part of Foundation without locale data.
import FoundationEssentials
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
/// | `/plimsoll/ui` | a page that draws the status |
/// | `POST /plimsoll/release`, `POST /plimsoll/simulate` | with `allowsChanges` only |
///
/// All pages are for operators: the status names caches, tasks and source files. Do not expose the pages to the
/// public; use a separate port or an access check.
///
/// Pages are served only for requests by an address, by `localhost`, or by a listed host name (`Options.hosts`, the
/// setting `admin.hosts`). Other hosts get 421, so no page of another site can read the pages by DNS rebinding. For
/// other hosts, the two health checks answer with the status code alone.
public struct AdminPages: Sendable {
    /// The contents of the pages and the permitted changes.
    public struct Options: Sendable {
        /// Title of the page.
        public var title: String
        /// True to permit purges and simulated pressure over HTTP, for pages of the same origin.
        public var allowsChanges: Bool
        /// True to answer `/readyz` with 503 while the ladder quiesces: after shedding at the warning and critical
        /// levels was not enough. By default pressure never makes a service unready. Otherwise all instances would
        /// become unready at once, and the last one left would get all requests.
        public var isUnreadyWhenQuiescing: Bool
        /// Host names for which the pages are served, besides addresses and `localhost`: `"shop.internal"`, without a
        /// port. Names of the setting `admin.hosts` are added.
        public var hosts: [String]

        /// Creates options; by default changes are not permitted.
        public init(
            title: String = "Plimsoll", allowsChanges: Bool = false, isUnreadyWhenQuiescing: Bool = false,
            hosts: [String] = []
        ) {
            self.hosts = hosts
            self.title = title
            self.allowsChanges = allowsChanges
            self.isUnreadyWhenQuiescing = isUnreadyWhenQuiescing
        }
    }

    /// The pages.
    public enum Page: String, Sendable, CaseIterable {
        case health = "/healthz"
        case readiness = "/readyz"
        case status = "/plimsoll"
        case metrics = "/plimsoll/metrics"
        case ui = "/plimsoll/ui"
        case release = "/plimsoll/release"
        case simulate = "/plimsoll/simulate"

        /// True if the page changes something.
        var isChange: Bool { self == .release || self == .simulate }

        /// True for checks by an orchestrator or load balancer. Such clients may name any host or none.
        var isCheck: Bool { self == .health || self == .readiness }
    }

    /// A request for a page.
    public struct Question: Sendable {
        /// The method of the request: `GET`, `HEAD`, `POST` or any other.
        public var method: String
        /// The decoded query; for a repeated name, one of the values.
        public var query: [String: String]
        /// The header `Host`, or HTTP/2's `:authority`. Empty if the request has none; several values are joined by
        /// commas. Both cases are refused.
        ///
        /// With `nil` the adapter does not check the host. All pages are then answered, and the adapter must prevent
        /// DNS rebinding.
        public var host: String?
        /// The header `Origin`.
        public var origin: String?
        /// The header `Sec-Fetch-Site`.
        public var fetchSite: String?

        /// Creates a question with these parts.
        public init(
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

    /// The answer to a question.
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
    /// Host names from the settings of a service, in addition to those of the options.
    private let hosts: @Sendable () -> [String]
    /// The contents of the pages and the permitted changes.
    public let options: Options

    /// Creates pages about a manager.
    public init(_ manager: ResourceManager, _ options: Options = Options()) { self.init(manager, options) { [] } }

    init(_ manager: ResourceManager, _ options: Options, hosts: @escaping @Sendable () -> [String]) {
        self.manager = manager
        self.options = options
        self.hosts = hosts
    }

    /// Returns true if requests for `path` are served at any level: health checks and operator pages.
    public static func isExempt(path: Substring) -> Bool {
        path == Page.health.rawValue || path == Page.readiness.rawValue || path == Page.status.rawValue
            || path.hasPrefix(Page.status.rawValue + "/")
    }

    /// Returns the answer to a request for `page`. For `HEAD` the answer has a body, which the adapter must omit.
    public func answer(_ page: Page, _ question: Question) async -> Answer {
        let allowed = page.isChange ? ["POST"] : ["GET", "HEAD"]
        guard allowed.contains(question.method) else {
            return Answer(
                405,
                "\(question.method.prefix(16)) is not allowed on \(page.rawValue); allowed is \(allowed.joined(separator: ", "))\n",
                headers: ["allow": allowed.joined(separator: ", ")])
        }
        let isTrusted = question.host.map { HostRule(options.hosts + hosts()).allows($0) } ?? true
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
            return Answer(200, PrometheusText.render(await manager.takeStatus()), type: PrometheusText.contentType)
        case .ui: return StatusPage(title: options.title, allowsChanges: options.allowsChanges).answer
        case .release, .simulate:
            return await AdminChange(manager, isAllowed: options.allowsChanges).answer(page, question)
        }
    }

    private var readiness: Answer {
        let readiness = manager.lifecycle.readiness, extent = manager.lifecycle.pausables.extent()
        guard readiness.isReady else { return Answer(503, "\(readiness)\n", headers: ["retry-after": "5"]) }
        if options.isUnreadyWhenQuiescing, extent.share == .least {
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
            return Answer(200, try StatusJSON.encode(status), type: "application/json")
        } catch {
            return Answer(500, "cannot write the status as JSON: \(error)\n")
        }
    }
}

/// Encodes and decodes a manager's status as JSON. The only place that defines this format.
public enum StatusJSON {
    /// Returns `status` as one line of JSON with a fixed order of keys.
    ///
    /// - Throws: An error if `status` contains a number that JSON cannot express.
    public static func encode(_ status: ManagerStatus) throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return String(decoding: try encoder.encode(status), as: UTF8.self)
    }

    /// Decodes text that `encode` has written, in this version or another.
    ///
    /// - Throws: An error if the text is not JSON, or lacks keys that every version has.
    public static func decode(_ text: String) throws -> ManagerStatus {
        try JSONDecoder().decode(ManagerStatus.self, from: Data(text.utf8))
    }
}
