import Foundation
import Plimsoll
import PlimsollLifecycle
import PlimsollService
import PlimsollTesting
import Testing

/// The shedder as a member of a manager's quiesce set, and the pages about the manager.
struct ShedStatusTests {
    private let manager = ResourceManager(source: ScriptedPressureSource())

    @Test func `a shedder in the quiesce set is listed among the admissions`() throws {
        let shedder = RequestShedder("front")
        manager.lifecycle.pausables.add(shedder)
        #expect(shedder.begin(.normal) == nil)
        let admission = try #require(manager.status.admissions.first)
        #expect(admission.name == "front" && admission.running == 1 && admission.admitted == 1)
        let decoded = try ManagerStatus(json: manager.status.json())
        #expect(decoded.admissions == [admission])
    }

    @Test func `shed requests are counted by priority, and an older status still decodes`() throws {
        let shedder = RequestShedder("front", policy: SheddingPolicy(limit: 1))
        manager.lifecycle.pausables.add(shedder)
        #expect(shedder.begin(.critical) == nil)
        for priority in [RequestPriority.sheddable, .sheddable, .normal] { #expect(shedder.begin(priority)?.reason == .concurrency) }
        let status = manager.status, requests = try #require(status.admissions.first?.requests)
        #expect(requests == shedder.counts && requests.admitted["critical"] == 1)
        #expect(requests.refused("sheddable") == 2 && requests.refused("normal") == 1 && requests.refused("critical") == 0)
        let text = try status.json()
        #expect(try ManagerStatus(json: text) == status)
        var object = try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
        var admissions = try #require(object["admissions"] as? [[String: Any]])
        admissions[0]["requests"] = nil
        object["admissions"] = admissions
        let older = try ManagerStatus(json: String(decoding: JSONSerialization.data(withJSONObject: object), as: UTF8.self))
        #expect(older.admissions.first?.requests == nil && older.admissions.first?.refused == 3)
    }

    @Test func `numbers that JSON lacks do not keep a status from being told, and are read back`() throws {
        for (number, text) in [(Double.nan, "nan"), (.infinity, "inf"), (-.infinity, "-inf")] as [(Double, String)] {
            var status = manager.status
            status.atSeconds = number
            let json = try status.json()
            #expect(json.contains("\"atSeconds\":\"\(text)\"") && !json.contains("\n"), "\(json)")
            let read = try ManagerStatus(json: json).atSeconds
            #expect(read == number || read.isNaN && number.isNaN, "\(text)")
        }
    }

    @Test func `levels reach the shedder through the set`() {
        let shedder = RequestShedder(policy: SheddingPolicy(seed: 1))
        manager.lifecycle.pausables.add(shedder)
        manager.lifecycle.pausables.setPressure(.critical, isQuiescing: false)
        #expect(shedder.extent == .narrowed(to: .quarter) && shedder.begin(.sheddable) != nil)
        manager.lifecycle.pausables.setPressure(.normal, isQuiescing: false)
        #expect(shedder.extent == .open && shedder.begin(.sheddable) == nil)
    }

    @Test func `health depends on nothing, and readiness gives the reason`() async {
        let pages = AdminPages(manager)
        manager.lifecycle.pausables.setPressure(.critical, isQuiescing: true)
        #expect(await pages.answer(.health, .init()).status == 200)
        let readiness = await pages.answer(.readiness, .init())
        #expect(readiness.status == 503 && readiness.body == "not ready: not launched\n" && readiness.headers["retry-after"] != nil)
    }

    @Test func `pressure makes a service unready only where configured, and then only while quiescing`() async throws {
        try await manager.lifecycle.launch()
        let pages = AdminPages(manager), strict = AdminPages(manager, isUnreadyWhenQuiescing: true)
        for (level, isQuiescing, expected) in [
            (PressureLevel.normal, false, 200), (.warning, false, 200), (.critical, false, 200), (.critical, true, 503), (.normal, false, 200),
        ] {
            manager.lifecycle.pausables.setPressure(level, isQuiescing: isQuiescing)
            #expect(await pages.answer(.readiness, .init()).status == 200)
            #expect(await strict.answer(.readiness, .init()).status == expected, "\(level)")
        }
        manager.lifecycle.pausables.setPressure(.warning, isQuiescing: false)
        #expect(await pages.answer(.readiness, .init()).body == "ready (complete), shedding requests: open, half\n")
        await manager.lifecycle.terminate()
    }

    @Test func `changes are refused unless allowed and asked for by our own page`() async {
        let closed = AdminPages(manager, hosts: ["demo"]), open = AdminPages(manager, allowsChanges: true, hosts: ["demo"])
        func status(_ pages: AdminPages, origin: String?, host: String? = "demo:8080", site: String? = nil, level: String = "normal") async -> Int {
            await pages.answer(
                .simulate, .init(method: "POST", query: ["level": level], host: host, origin: origin, fetchSite: site)
            ).status
        }
        #expect(await status(closed, origin: "http://demo:8080") == 403)
        #expect(await status(open, origin: "http://demo:8080") == 200)
        #expect(await status(open, origin: "https://demo:8080", site: "same-origin") == 200)
        for origin in [
            nil, "", "null", "http://demo", "http://demo:80800", "http://evil.example", "http://demo:8080/", "http://demo:8080@evil.example",
        ] {
            #expect(await status(open, origin: origin) == 403, "\(origin ?? "none")")
        }
        #expect(await status(open, origin: "http://demo:8080", site: "cross-site") == 403)
        #expect(await status(open, origin: "http://", host: "") == 421)
        #expect(await status(open, origin: "http://demo:8080", host: nil) == 403)
        #expect(await status(open, origin: "http://demo:8080", level: "panic") == 400)
    }

    @Test func `a change over HTTP has the bounds and refusals of the admin socket`() async {
        manager.register("thumbnails", rebuildCost: .cheap, byteCount: { 64 }, release: { _ in 64 })
        let pages = AdminPages(manager, allowsChanges: true)
        func answer(_ page: AdminPages.Page, _ query: [String: String]) async -> AdminPages.Answer {
            await pages.answer(page, .init(method: "POST", query: query, host: "localhost", origin: "http://localhost"))
        }
        for (page, query, status, words) in [
            (AdminPages.Page.simulate, ["level": "critical", "seconds": "3601"], 400, "from 0.001 to 3600"),
            (.simulate, ["level": "critical", "seconds": "soon"], 400, "whole number"),
            // The manager of this test does not run.
            (.simulate, ["level": "critical", "seconds": "3600"], 503, "does not run"),
            (.simulate, ["level": "normal"], 200, "normal"),
            (.release, ["bytes": "0"], 400, "allowed is 1 or more"),
            (.release, ["name": "thumbnails", "tag": "a"], 400, "takes one of"),
            (.release, ["name": "sessions"], 404, "registered: thumbnails"),
            (.release, ["upTo": "dear"], 400, "allowed are trivial"),
            (.release, [:], 200, "released 64 B"),
        ] {
            let answer = await answer(page, query)
            #expect(answer.status == status && answer.body.contains(words), "\(page) \(query): \(answer)")
        }
    }

    @Test func `each page names the allowed methods`() async {
        let pages = AdminPages(manager, allowsChanges: true)
        for page in AdminPages.Page.allCases {
            let answer = await pages.answer(page, .init(method: "BREW"))
            #expect(answer.status == 405 && answer.headers["allow"]?.isEmpty == false, "\(page)")
        }
        #expect(await pages.answer(.release, .init(method: "GET")).status == 405)
        #expect(await pages.answer(.status, .init(method: "POST")).status == 405)
    }

    @Test func `a client can ask for a status with fewer actions`() async throws {
        for _ in 0..<5 { await manager.release(1) }
        let pages = AdminPages(manager)
        for (text, count) in [("0", 0), ("3", 3), ("256", 5)] {
            let answer = await pages.answer(.status, .init(query: ["actions": text]))
            #expect(try ManagerStatus(json: answer.body).actions.count == count)
        }
        for text in ["-1", "257", "many", ""] { #expect(await pages.answer(.status, .init(query: ["actions": text])).status == 400) }
    }

    @Test func `the page has no outside reference, and a new nonce each time`() async throws {
        let pages = AdminPages(manager, title: "a <b>\"&")
        let first = await pages.answer(.ui, .init()), second = await pages.answer(.ui, .init())
        #expect(first.headers["content-security-policy"] != second.headers["content-security-policy"])
        let policy = try #require(first.headers["content-security-policy"])
        #expect(policy.hasPrefix("default-src 'none'; ") && !policy.contains("unsafe") && !policy.contains("*"))
        #expect(first.body.contains("<title>a &lt;b&gt;&quot;&amp;</title>"))
        // The namespace of SVG is no address that a browser requests.
        let text = first.body.replacing("http://www.w3.org/2000/svg", with: "")
        for outside in ["http:", "https:", "//cdn", "src=", "@import", "url(", "eval(", "innerHTML", "style=", "onclick"] {
            #expect(!text.contains(outside), "\(outside)")
        }
        #expect(!first.body.contains("data-change=") && first.body.utf8.count < 64 << 10)
    }

    @Test func `paths are exempt only where the pages serve them`() {
        for path in ["/healthz", "/readyz", "/plimsoll", "/plimsoll/ui", "/plimsoll/metrics"] { #expect(AdminPages.isExempt(path: path[...])) }
        for path in ["/", "/healthz/more", "/plimsolls", "/healthzz", "/a/plimsoll", ""] { #expect(!AdminPages.isExempt(path: path[...])) }
    }
}
