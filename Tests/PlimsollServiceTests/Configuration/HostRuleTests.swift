import Plimsoll
import PlimsollLifecycle
import PlimsollTesting
import Testing

@testable import PlimsollService

/// The hosts under which pages are served. A foreign name that resolves to this address is refused (DNS rebinding).
@Suite struct HostRuleTests {
    private let manager = ResourceManager(source: ScriptedPressureSource())

    static let trusted = [
        "localhost", "LOCALHOST", "localhost:8080", "localhost.", "localhost.:8080", "localhost:", "127.0.0.1",
        "127.0.0.1:80", "10.1.2.3:65535",
        "[::1]", "[::1]:8080", "[fe80::1:2:3]", "[::ffff:10.0.0.1]:1", "shop.internal", "SHOP.internal:443",
        "shop.internal.", "Shop.Internal.:1",
        "ops.example",
    ]
    static let refused = [
        "", " ", ".", ":", ":80", "evil.example", "evil.example:8080", "evil.example.", "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example#localhost", "shop.internal.evil.example", "evilshop.internal", "shop.internal..",
        "shop..internal", ".shop.internal",
        "localhost, evil.example", "localhost,localhost", "localhost localhost", "localhost\tx",
        "evil.example\r\nHost: localhost", "local\0host",
        "localhost\0", "127.0.0.1\0.evil.example", "user@localhost", "localhost@evil.example", "user:pass@127.0.0.1",
        "http://localhost", "localhost/",
        "localhost?", "localhost:80:80", "localhost:8o", "localhost:123456", "localhost:-1", "localhost: 80", "127.1",
        "2130706433", "0x7f.0.0.1",
        "0177.0.0.1", "127.0.0.1.", "127.0.0.256", "::1", "::1:80", "[::1", "::1]", "[]", "[::1]x", "[::1]:x",
        "[::1%25lo]", "[127.0.0.1]", "[v1.x]",
        "[localhost]", "[::1].evil.example", "loc\u{E4}lhost", "\u{FF4C}ocalhost", "localhost\u{3002}", "*",
        "*.internal", "xn--evil.example",
        String(repeating: "a", count: 64) + ".internal", String(repeating: "a.", count: 200),
        String(repeating: "1", count: 100_000),
    ]

    private func pages() -> AdminPages {
        var settings = ServiceSettings()
        settings.adminHosts = ["ops.example"]
        return AdminPages(ResourceService(manager, settings: settings), allowsChanges: true, hosts: ["shop.Internal.", "no host", ""])
    }

    @Test(arguments: trusted)
    func `an address, localhost and listed names are answered, in any notation that browsers use`(host: String)
        async
    {
        let pages = pages()
        // A census for each host would take long. HeapPageTests covers the heap page.
        for page in AdminPages.Page.allCases where page != .heap {
            let answer = await pages.answer(
                page, .init(method: page.isChange ? "POST" : "GET", query: ["level": "normal"], host: host))
            #expect(answer.status == (page == .readiness ? 503 : page.isChange ? 403 : 200), "\(host) \(page)")
        }
        let change = await pages.answer(
            .simulate, .init(method: "POST", query: ["level": "normal"], host: host, origin: "https://" + host))
        #expect(change.status == 200, "\(change)")
    }

    @Test(arguments: refused)
    func `any other host gets no answer, and changes nothing`(host: String) async {
        let pages = pages()
        for page in AdminPages.Page.allCases where !page.isCheck {
            // The request of a page under the same name: for the browser this is the same site.
            let answer = await pages.answer(
                page,
                .init(
                    method: page.isChange ? "POST" : "GET", query: ["level": "critical"], host: host,
                    origin: "http://" + host,
                    fetchSite: "same-origin"))
            #expect(answer.status == 421 && answer.body.hasPrefix("refused: the host "), "\(host) \(page) \(answer)")
            #expect(answer.body.utf8.count < 600 && !answer.body.dropLast().unicodeScalars.contains { $0.value < 32 })
        }
        #expect(manager.level == .normal)
    }

    @Test func `health checks answer any host, and give the reason to trusted hosts only`()
        async throws
    {
        let pages = pages()
        for host in ["evil.example", ""] {
            #expect(await pages.answer(.health, .init(host: host)) == pages.answer(.health, .init(host: "localhost")))
            let readiness = await pages.answer(.readiness, .init(host: host))
            #expect(
                readiness.status == 503 && readiness.body == "not ready\n" && readiness.headers["retry-after"] == "5")
        }
        #expect(await pages.answer(.readiness, .init(host: "localhost")).body == "not ready: not launched\n")
        try await manager.lifecycle.launch()
        #expect(await pages.answer(.readiness, .init(host: "evil.example")).body == "ready\n")
        await manager.lifecycle.terminate()
    }

    @Test func `an empty list trusts no name but localhost`() async {
        let pages = AdminPages(manager)
        #expect(await pages.answer(.status, .init(host: "shop.internal")).status == 421)
        #expect(await pages.answer(.status, .init(host: "localhost")).status == 200)
        #expect(await pages.answer(.status, .init(host: "10.0.0.1")).status == 200)
    }

    @Test func `the list is read from the settings, and a malformed name stops the start`() throws {
        let settings = try ServiceSettings(environment: ["PLIMSOLL_ADMIN_HOSTS": "Shop.internal., ops.example,a_b-c"])
        #expect(settings.adminHosts == ["shop.internal", "ops.example", "a_b-c"])
        #expect(try ServiceSettings(environment: ["PLIMSOLL_ADMIN_HOSTS": "none"]).adminHosts == [])
        for wrong in ["shop.internal:80", "*", "http://shop", "a,,b", "a b", "a@b", "[::1]", ","] {
            #expect(throws: ConfigurationProblem.self, "\(wrong)") {
                try ServiceSettings(environment: ["PLIMSOLL_ADMIN_HOSTS": wrong])
            }
        }
    }

    @Test func `a manager without a service has pages, too`() async {
        let bare = AdminPages(
            ResourceManager(source: ScriptedPressureSource()), hosts: ["shop.internal"])
        #expect(await bare.answer(path: "/plimsoll", host: "shop.internal")?.status == 200)
        #expect(await bare.answer(path: "/plimsoll", host: "evil.example")?.status == 421)
        #expect(await bare.answer(path: "/plimsoll/", host: "shop.internal") == nil)
        for path in AdminPages.paths { #expect(await bare.answer(path: path, host: nil) != nil) }
    }
}
