import Hummingbird
import Plimsoll
import PlimsollHummingbird
import PlimsollLifecycle
import PlimsollService
import Testing

/// The page in a browser, after the page's script has run.
@Suite(
    .serialized,
    .enabled(if: Browser.path != nil, "no Chromium is installed here (Debian's package is chromium); the page's text is tested elsewhere"))
struct StatusPageTests {
    @Test func `the page has live numbers, and the browser's console stays empty`() async throws {
        try await Harness().running { harness in
            let numbers = PurgeableCache<Int, Int>("numbers", limit: .mebibytes(8), cost: { _, _ in 1 << 20 })
            harness.manager.register(numbers)
            for key in 0..<3 { numbers.insert(key, forKey: key) }
            #expect(numbers.value(forKey: 1) == 1 && numbers.value(forKey: 9) == nil)
            await harness.manager.release(1 << 20)
            let task = harness.manager.beginBackgroundTask("nightly report") { task, _ in task.end() }
            task.progress(completed: 30, total: 40)
            harness.shedding.shedder.quiesce(to: .quarter)
            for _ in 0..<3 { #expect(harness.shedding.shedder.begin(.sheddable) != nil) }
            harness.shedding.shedder.quiesce(to: .open)
            try await harness.application({ ($0.title, $0.allowsChanges) = ("shop <1>", true) }).test(.live) { client in
                let page = try await Browser.load("http://127.0.0.1:\(try #require(client.port))/plimsoll/ui")
                #expect(page.console.isEmpty, "\(page.console.joined(separator: "\n"))")
                let text = page.document
                for part in [
                    "shop &lt;1&gt;", "usage 100 MiB", "limit 256 MiB", "ready, active", ">normal<", ">numbers<", ">2.0 MiB<", ">8.0 MiB<", ">50 %<",
                    ">nightly report<", ">75 %<", ">release<", ">operator<", ">http<", ">3 (3 sheddable)<", "live, updated", "Simulate a warning",
                ] { #expect(text.contains(part), "\(part)") }
                #expect(
                    text.contains("<progress") && text.contains("The last two minutes: now 100 MiB not reclaimable, usage 100 MiB, limit 256 MiB"))
                #expect(text.contains("id=\"trouble\" role=\"alert\" hidden"))
                // More than one sample has been drawn as a line.
                #expect(text.contains("class=\"line usage\" d=\"M") && harness.shedding.shedder.counts.admitted["normal"] ?? 0 > 2)
            }
            task.end()
        }
    }

    @Test func `with #heap in the address the page draws the types on the heap`() async throws {
        let kept = (0..<4).map { _ in [UInt8](repeating: 1, count: 8 << 20) }
        try await Harness().application().test(.live) { client in
            let page = try await Browser.load("http://127.0.0.1:\(try #require(client.port))/plimsoll/ui#heap")
            #expect(page.console.isEmpty, "\(page.console.joined(separator: "\n"))")
            for part in [
                " are named or owned; registered caches and purgeables declare ", "class=\"tile\"", "class=\"tile unnamed\"",
                " of _ContiguousArrayStorage&lt;UInt8&gt;, ", " of C and others, without a name</title>",
                "<svg id=\"heap-map\" role=\"img\" height=\"340\" viewBox=",
            ] { #expect(page.document.contains(part), "\(part)") }
            #expect(!page.document.contains("role=\"status\">There is no census"))
        }
        withExtendedLifetime(kept) {}
    }

    @Test func `the page reports missing parts of the status in words`() async throws {
        try await Harness().application().test(.live) { client in
            let page = try await Browser.load("http://127.0.0.1:\(try #require(client.port))/plimsoll/ui")
            #expect(page.console.isEmpty, "\(page.console.joined(separator: "\n"))")
            for part in [
                "The manager has not read memory yet", "No background task runs.", "No purgeable is registered with this manager.",
                "No action so far.", "not ready: not launched",
            ] { #expect(page.document.contains(part), "\(part)") }
            let hasChanges = page.document.contains("data-change=\"")
            #expect(!hasChanges)
        }
    }

    @Test func `a server that does not answer is named as unreachable`() async throws {
        let router = Router(), pages = AdminPages(Harness().manager)
        router.get("/plimsoll/ui") { _, _ in
            let answer = try #require(await pages.answer(path: "/plimsoll/ui", host: nil))
            return Response(
                status: .ok, headers: [.contentType: answer.contentType, .contentSecurityPolicy: answer.headers["content-security-policy"] ?? ""],
                body: .init(byteBuffer: ByteBuffer(string: answer.body)))
        }
        router.get("/plimsoll") { _, _ -> String in throw HTTPError(.badGateway) }
        let application = Application(router: router, configuration: .init(address: .hostname("127.0.0.1", port: 0)))
        try await application.test(.live) { client in
            let page = try await Browser.load("http://127.0.0.1:\(try #require(client.port))/plimsoll/ui")
            #expect(
                page.document.contains(
                    "The server can't be reached: the server answers 502. Nothing has been received yet. Trying again each second."))
            #expect(page.document.contains("not connected"))
        }
    }
}
