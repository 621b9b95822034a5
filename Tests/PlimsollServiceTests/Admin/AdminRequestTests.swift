import CAllocationCounter
import Glibc
import Plimsoll
import PlimsollHeap
import PlimsollLifecycle
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import PlimsollService

/// Requests and answers of the admin endpoint.
@Suite struct AdminRequestTests {
    @Test func `status reports all that the manager knows`() async throws {
        try await AdminFixture.run { fixture in
            let answer = try fixture.answer(#"{"command":"status"}"#)
            #expect(answer.ok)
            let status = try #require(answer.status)
            #expect(status.level == "normal")
            #expect(status.memory?.usageBytes == 300 << 20)
            #expect(status.holders.map(\.name) == ["images", "rows"])
            #expect(answer.allowsChanges == true)
            #expect(answer.process == getpid())
            #expect(answer.endpoint?.requests == 1)
            #expect(answer.endpoint?.connections == 1)
        }
    }

    @Test func `caches and tasks are parts of the status`() async throws {
        try await AdminFixture.run { fixture in
            let caches = try #require(try fixture.answer(#"{"command":"caches"}"#).caches)
            #expect(caches.map(\.heldBytes) == [400_000, 200_000])
            #expect(caches[0].group == "media")
            #expect(caches[0].limitBytes == 4 << 20)
            #expect(caches[0].cache?.count == 4)
            let task = fixture.manager.beginBackgroundTask("export") { task, _ in task.end() }
            let tasks = try #require(try fixture.answer(#"{"command":"tasks"}"#).tasks)
            #expect(tasks.running == 1)
            #expect(tasks.oldest.map(\.name) == ["export"])
            task.end()
        }
    }

    @Test(.needs(allocation_count_works(), "a sanitizer is in front of malloc"))
    func `heap lists the largest types of the process, and then what has grown`() async throws {
        struct Grown { var numbers = (1, 2) }
        try await AdminFixture.run { fixture in
            // On a separate thread: a census takes seconds while other tests take theirs.
            func ask(_ line: String) async throws -> AdminAnswer {
                try await withCheckedThrowingContinuation { done in
                    precondition(Thread.start("ask") { done.resume(with: Result { try fixture.answer(line) }) })
                }
            }
            // A census only reads, and needs no permission for changes.
            let answer = try await ask(#"{"command":"heap","rows":5}"#), heap = try #require(answer.heap)
            #expect(answer.process == getpid() && heap.census.rows.count == 5 && heap.types > 100)
            #expect(heap.declaredBytes == 600_000)
            #expect(heap.growth == nil && heap.growthSeconds == nil && heap.census.coverage > 0)
            let kept = [Grown](repeating: Grown(), count: 4 << 20)
            let again = try #require(try await ask(#"{"command":"heap"}"#).heap), growth = try #require(again.growth)
            #expect(again.census.rows.count == 40 && (again.growthSeconds ?? -1) >= 0)
            #expect(growth.first { $0.name.hasSuffix("Grown>") }?.usedBytes == 64 << 20)
            withExtendedLifetime(kept) {}
            #expect(try fixture.answer(#"{"command":"heap","rows":0}"#).error == "\"rows\" is 0; allowed is 1 to 1000")
        }
    }

    @Test func `purge empties the selected purgeables alone`() async throws {
        try await AdminFixture.run { fixture in
            let report = try #require(try fixture.answer(#"{"command":"purge","name":"images","bytes":150000}"#).report)
            #expect(report.origin == "operator")
            #expect(report.askedBytes == 150_000)
            #expect(report.releasedBytes == 200_000)
            #expect(fixture.rows.count == 4)
            _ = try fixture.answer(#"{"command":"purge","all":true,"upTo":"cheap"}"#)
            #expect(fixture.images.count == 0)
            #expect(fixture.rows.count == 4)
            #expect(try fixture.answer(#"{"command":"purge","group":"media"}"#).ok)
            #expect(try fixture.answer(#"{"command":"purge","tag":"rebuildable"}"#).ok)
            #expect(fixture.rows.count == 4)
            #expect(try fixture.answer(#"{"command":"purge","all":true}"#).ok)
            #expect(fixture.rows.count == 0)
            #expect(fixture.endpoint.counts.requests == 5)
        }
    }

    @Test func `C74 an operator's activation brings the process to the front, and is answered after the handling there`() async throws {
        try await AdminFixture.run { fixture in
            let lifecycle = fixture.manager.lifecycle, seen = Mutex<[String]>([])
            lifecycle.onActivation("links") { request, payload in
                let text = "\(request) \(String(decoding: payload, as: UTF8.self)) \(lifecycle.state)"
                seen.withLock { $0.append(text) }
            }
            try await lifecycle.launch(into: .background)
            let answer = try fixture.answer(#"{"command":"activate","name":"open","payload":"tenant 42"}"#)
            #expect(answer.ok && answer.name == "open" && answer.state == "active")
            #expect(seen.withLock { $0 } == ["open tenant 42 active"])
            await lifecycle.terminate()
            let refusal = try fixture.answer(#"{"command":"activate","name":"open"}"#)
            #expect(!refusal.ok && refusal.code == "failed" && refusal.error?.contains("terminated") == true, "\(refusal.error ?? "")")
            #expect(seen.withLock { $0.count } == 1)
        }
    }

    @Test(arguments: [
        (nil as String?, false, "the supervisor was asked to suspend the process."),
        ("no supervisor is connected", false, "the process was to be suspended, which was refused: no supervisor is connected."),
        (nil, true, "the process was to be suspended, but only reported (dry run)."),
    ])
    func `an explanation mentions a supervisor only where one was asked`(refusal: String?, isDryRun: Bool, sentence: String) async throws {
        let source = ScriptedPressureSource(), clock = ManualClock()
        let manager = ResourceManager(source: source, policy: .init(isDryRun: isDryRun), clock: clock)
        let link = manager.onSuspensionRequest { refusal }
        let running = Task { try await manager.run() }
        for _ in 0..<13 {
            await source.whileIdle {
                clock.advance(by: .seconds(1))
                source.push(usage: .mebibytes(1004), limit: .gibibytes(1))
            }
            await source.waitUntilIdle()
        }
        let sentences = AdminExplanation(manager.status).sentences
        #expect(sentences.count { $0.contains("suspend") } == 1 && sentences.contains { $0.hasSuffix(": " + sentence) }, "\(sentences)")
        link.cancel()
        running.cancel()
        try await running.value
    }

    @Test func `a rehearsal begins, is seen, and is explained`() async throws {
        try await AdminFixture.run { fixture in
            let answer = try fixture.answer(#"{"command":"simulate","level":"critical","seconds":5}"#)
            #expect(answer.ok)
            #expect(answer.level == "critical")
            #expect(answer.seconds == 5)
            await fixture.until { fixture.manager.level == .critical && !fixture.manager.reports.isEmpty }
            let sentences = try #require(try fixture.answer(#"{"command":"explain"}"#).sentences)
            #expect(
                sentences[0].hasPrefix("Memory is at level critical: 300 MiB are used of 1 GiB, 724 MiB can still be allocated;"), "\(sentences[0])")
            #expect(sentences.dropFirst().allSatisfy { $0.contains("because an operator simulates it") }, "\(sentences)")
            #expect(try fixture.answer(#"{"command":"explain","last":1}"#).sentences?.count == 2)
            #expect(try fixture.answer(#"{"command":"simulate","level":"normal"}"#).ok)
        }
    }

    @Test func `a rehearsal without a running manager is refused`() async throws {
        try await AdminFixture.run(runsManager: false) { fixture in
            let answer = try fixture.answer(#"{"command":"simulate","level":"warning","seconds":1}"#)
            #expect(answer.code == "failed")
            #expect(answer.error?.hasPrefix("cannot simulate a level because the manager does not run") == true)
            #expect(try fixture.answer(#"{"command":"status"}"#).status?.memory == nil)
        }
    }

    @Test func `a cache's limit can be set by a unique name`() async throws {
        try await AdminFixture.run(holders: 1) { fixture in
            let answer = try fixture.answer(#"{"command":"limit","name":"images","bytes":250000}"#)
            #expect(answer.limitBytes == 250_000)
            #expect(fixture.images.limit == .bytes(250_000))
            #expect(fixture.images.byteCount <= 250_000)
            let absent = try fixture.answer(#"{"command":"limit","name":"imagse","bytes":1}"#)
            #expect(absent.code == "absent")
            #expect(absent.error == "cannot set the limit of \"imagse\" because no cache has that name; caches with a limit: images, rows")
            #expect(
                try fixture.answer(#"{"command":"limit","name":"holder-0","bytes":1}"#).error
                    == "cannot set the limit of \"holder-0\" because the purgeable is not a ResizablePurgeable")
        }
    }

    @Test func `no command changes state without permission`() async throws {
        try await AdminFixture.run(allowsChanges: false) { fixture in
            let changes = [
                #"{"command":"purge","all":true}"#, #"{"command":"simulate","level":"critical","seconds":5}"#,
                #"{"command":"limit","name":"images","bytes":1}"#,
            ]
            for change in changes {
                let answer = try fixture.answer(change)
                #expect(!answer.ok)
                #expect(answer.code == "read-only")
                #expect(answer.error?.hasPrefix("read-only: set PLIMSOLL_ADMIN_ALLOWS_CHANGES=true, or `allowsChanges: true`") == true)
            }
            #expect(fixture.images.count == 4)
            #expect(fixture.manager.level == .normal)
            #expect(fixture.endpoint.counts.refused == 3)
            #expect(try fixture.answer(#"{"command":"status"}"#).allowsChanges == false)
        }
    }

    @Test(arguments: [
        ("", "the line is empty"), ("status", "the line is not JSON"), ("[]", "a request is a JSON object"),
        ("\"status\"", "a request is a JSON object"),
        ("{}", "a request needs a \"command\""), (#"{"command":5}"#, "\"command\" must be text"), (#"{"command":null}"#, "\"command\" must be text"),
        (
            #"{"command":"dance"}"#,
            "unknown command \"dance\"; known commands are status, caches, tasks, explain, heap, watch, purge, simulate, limit, activate"
        ),
        (#"{"command":"status","verbose":true}"#, "status does not take \"verbose\"; it takes nothing"),
        (#"{"command":"purge","byts":1}"#, "purge does not take \"byts\"; it takes \"name\", \"group\", \"tag\", \"upTo\", \"all\", \"bytes\""),
        (#"{"command":"purge"}"#, "purge of everything needs \"all\":true"), (#"{"command":"purge","all":false}"#, "needs \"all\":true"),
        (#"{"command":"purge","all":true,"name":"a"}"#, "leave one of them out"),
        (#"{"command":"purge","name":"a","tag":"b"}"#, "purge takes one of"),
        (#"{"command":"purge","bytes":"1"}"#, "\"bytes\" must be a whole number"),
        (#"{"command":"purge","bytes":1.5}"#, "\"bytes\" must be a whole number"),
        (#"{"command":"purge","bytes":1e300}"#, "must be a whole number"),
        (#"{"command":"purge","bytes":0}"#, "\"bytes\" is 0; allowed is 1 or more"), (#"{"command":"purge","bytes":-1}"#, "allowed is 1 or more"),
        (#"{"command":"purge","upTo":"free"}"#, "allowed are trivial, cheap, expensive, precious"),
        (#"{"command":"purge","name":"a","name":["b"]}"#, "the line is nested"), (#"{"command":{"command":"status"}}"#, "the line is nested"),
        (#"{"command":"simulate"}"#, "needs a \"level\""), (#"{"command":"simulate","level":"critical"}"#, "needs \"seconds\" from 0.001 to 3600"),
        (#"{"command":"simulate","level":"critical","seconds":1e9}"#, "needs \"seconds\""),
        (#"{"command":"watch","milliseconds":1}"#, "\"milliseconds\" is 1; allowed is 100 to 60000"),
        (#"{"command":"explain","last":0}"#, "\"last\" is 0; allowed is 1 to 256"),
        (#"{"command":"limit","name":"images"}"#, "limit needs the \"name\""),
        (#"{"command":"status"}{"command":"status"}"#, "the line is not JSON"), ("{\"command\":\"status\"\0}", "not UTF-8 text"),
    ])
    func `a malformed request is answered with the reason and the allowed values`(line: String, sentence: String) async throws {
        try await AdminFixture.run { fixture in
            let answer = try fixture.answer(line)
            #expect(!answer.ok)
            #expect(answer.code == "malformed", "\(line)")
            #expect(answer.error?.contains(sentence) == true, "\(line): \(answer.error ?? "")")
            #expect(fixture.endpoint.counts.malformed == 1)
            #expect(fixture.endpoint.counts.requests == 0)
            #expect(fixture.images.count == 4)
        }
    }

    @Test func `a missing name is answered with the existing names`() async throws {
        try await AdminFixture.run { fixture in
            let answer = try fixture.answer(#"{"command":"purge","group":"medai"}"#)
            #expect(answer.code == "absent")
            #expect(answer.error == "no purgeable in the group \"medai\" is registered; registered: images, rows")
        }
    }

    @Test func `requests on one connection are answered in order, in any chunks`() async throws {
        try await AdminFixture.run { fixture in
            let client = try fixture.client()
            try client.send(Array((#"{"command":"tasks"}"# + "\n" + #"{"command":"caches"}"# + "\r\n" + #"{"comm"#).utf8))
            #expect(try client.decode(client.nextLine()).tasks != nil)
            #expect(try client.decode(client.nextLine()).caches != nil)
            try client.send(Array((#"and":"status"}"# + "\n").utf8))
            #expect(try client.decode(client.nextLine()).status != nil)
            try client.send(Array("nonsense\n".utf8))
            #expect(try client.decode(client.nextLine()).code == "malformed")
            #expect(try client.answer(to: AdminRequest(.status)).ok)
        }
    }

    @Test func `status is answered during a purge`() async throws {
        try await AdminFixture.run { fixture in
            let holder = SlowHolder()
            fixture.manager.register(holder)
            let asker = try fixture.client(), other = try fixture.client()
            try asker.send(Array((#"{"command":"purge","name":"slow"}"# + "\n").utf8))
            await fixture.until { holder.isAsked }
            #expect(try other.answer(to: AdminRequest(.status)).ok)
            holder.letGo()
            #expect(try asker.decode(asker.nextLine()).report?.releasedBytes == 7)
        }
    }
}
