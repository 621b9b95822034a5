#if Hummingbird
import HTTPTypes
public import Hummingbird
public import Plimsoll
public import PlimsollService

extension RouterMethods {
    /// Adds the pages of `AdminPages`: `/healthz`, `/readyz`, `/plimsoll`, `/plimsoll/metrics`, `/plimsoll/heap`,
    /// `/plimsoll/ui`, `/plimsoll/release` and `/plimsoll/simulate`. The last two refuse every change unless
    /// `AdminPages.allowsChanges` is true.
    ///
    ///     router.addPlimsollRoutes(plimsoll)
    ///     router.add(middleware: LoadSheddingMiddleware(manager))
    ///
    /// Add the routes before other middleware, so that no middleware can block the pages. The pages expose internal
    /// details. Add them to a group behind an access check, or to a router on a separate port, unless only operators
    /// can reach this router.
    @discardableResult
    public func addPlimsollRoutes(_ service: ResourceService) -> Self { addPlimsollRoutes(AdminPages(service)) }

    /// Adds the pages of a manager that has no `ResourceService`.
    @discardableResult
    public func addPlimsollRoutes(_ manager: ResourceManager) -> Self { addPlimsollRoutes(AdminPages(manager)) }

    /// Adds pages with a title, hosts and permitted changes of their own.
    @discardableResult
    public func addPlimsollRoutes(_ pages: AdminPages) -> Self {
        // All methods that a browser or a probe sends, so that a disallowed method gets a proper answer. Other
        // methods get 404.
        let methods: [HTTPRequest.Method] = [.get, .head, .post, .put, .patch, .delete, .options]
        for page in AdminPages.Page.allCases {
            for method in methods {
                on(RouterPath(page.rawValue), method: method) { request, _ in
                    Response(await pages.answer(page, AdminPages.Question(request)), isHead: request.method == .head)
                }
            }
        }
        return self
    }
}

extension AdminPages.Question {
    init(_ request: Request) {
        let query = request.uri.queryParameters.reduce(into: [:]) { $0[String($1.key)] = String($1.value) }
        // The first header `Host` is the authority. A second one stays among the headers, and the intended one is
        // ambiguous.
        let hosts =
            [request.head.authority].compactMap { $0 }
            + (HTTPField.Name("Host").map { request.headers[values: $0] } ?? [])
        self.init(
            method: request.method.rawValue, query: query, host: hosts.joined(separator: ", "),
            origin: request.headers[.origin],
            fetchSite: HTTPField.Name("Sec-Fetch-Site").flatMap { request.headers[$0] })
    }
}

extension Response {
    init(_ answer: AdminPages.Answer, isHead: Bool) {
        var headers: HTTPFields = [.contentType: answer.contentType, .contentLength: "\(answer.body.utf8.count)"]
        for (name, value) in answer.headers {
            guard let name = HTTPField.Name(name) else { preconditionFailure("\(name) is not the name of a header") }
            headers[name] = value
        }
        self.init(
            status: .init(code: answer.status), headers: headers,
            body: isHead ? ResponseBody() : ResponseBody(byteBuffer: ByteBuffer(string: answer.body)))
    }
}
#endif
