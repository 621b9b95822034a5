import GRDB
import Plimsoll
import PlimsollGRDB
import PlimsollLifecycle
import PlimsollPostgreSQL
import PlimsollTesting
import Synchronization
import TestServers
import Testing

/// The contract of every hand-over store, for the stores in memory, in a file and in a server.
@Suite(.serialized, .timeLimit(.minutes(5))) struct HandoffContractTests {
    enum Kind: String, CaseIterable, Sendable, CustomTestStringConvertible {
        case memory, sqlite, postgresql
        var testDescription: String { rawValue }
        var isHere: Bool { self != .postgresql || PostgreSQLServer.isInstalled }
    }

    /// One place for tasks, and a store on that place for each replica.
    private final class Place: Sendable {
        let stores: [any TaskHandoff]
        private let owned: [any Sendable]

        /// Creates the place. Cancels the test, which is then reported as skipped, where the kind's server is not
        /// installed.
        init(_ kind: Kind, policy: TaskHandoffPolicy = TaskHandoffPolicy()) async throws {
            if !kind.isHere { try Test.cancel("\(kind): \(PostgreSQLServer.reason)") }
            switch kind {
            case .memory:
                let store = MemoryTaskHandoff(policy: policy)
                (stores, owned) = ([store, store], [])
            case .sqlite:
                let directory = try TemporaryDirectory("handoff")
                stores = try (0..<2).map { _ in try SQLiteTaskHandoff(path: directory.path("tasks"), policy: policy, busyTimeout: .seconds(60)) }
                owned = [directory]
            case .postgresql:
                let server = try await PostgreSQLServer()
                (stores, owned) = ([server.store(policy), server.store(policy)], [server])
            }
        }
    }

    private let hour = Duration.seconds(3600)

    private func error(_ body: () async throws -> Void) async -> TaskHandoffError? {
        do {
            try await body()
            return nil
        } catch { return error as? TaskHandoffError }
    }

    @Test(arguments: Kind.allCases)
    func `work passes from one replica to another with all of the offer's data`(kind: Kind) async throws {
        let place = try await Place(kind), (one, two) = (place.stores[0], place.stores[1])
        let bytes = (0...255).map { UInt8($0) } + [0, 39, 92, 0]
        let offer = HandedOffTask(name: "export 'ü\\", checkpoint: bytes, reason: .pressure)
        var claim = try await one.offer(offer, heldBy: "one", for: hour)
        #expect(try await one.offer(offer, heldBy: "one", for: hour) == claim, "offering again changes nothing")
        #expect(try await one.census() == (0, 1, 0))
        #expect(try await two.take([offer.name], by: "two", for: hour) == nil, "another replica holds the work")
        try await one.renew(claim, for: hour, checkpoint: [1])
        claim.reason = .shutdown
        try await one.release(claim, checkpoint: bytes + [7], failure: nil)
        #expect(try await two.take(["other"], by: "two", for: hour) == nil, "not by that name")

        let work = try #require(try await two.take(["other", offer.name], by: "two", for: hour))
        #expect(work.checkpoint == bytes + [7] && work.reason == .shutdown && work.attempts == 1)
        #expect(work.id == offer.id && work.name == offer.name && work.owner == "two" && work.fence == 2)
        #expect(try await one.take([offer.name], by: "one", for: hour) == nil)
        // Every call under the old claim fails.
        #expect(await error { try await one.renew(claim, for: hour, checkpoint: [9]) }?.isLostClaim == true)
        #expect(await error { try await one.complete(claim) }?.isLostClaim == true)
        #expect(await error { try await one.release(claim, checkpoint: [9], failure: nil) }?.isLostClaim == true)
        var forged = work
        forged.owner = "one"
        let refusal = await error { [forged] in try await one.complete(forged) }
        #expect(refusal?.isLostClaim == true)
        try await two.complete(work)
        #expect(await error { try await two.complete(work) }?.isLostClaim == true)
        #expect(try await one.census() == (0, 0, 0))
    }

    @Test(arguments: Kind.allCases)
    func `a lease that ends gives the work to another, under a newer fence`(kind: Kind) async throws {
        let place = try await Place(kind), (one, two) = (place.stores[0], place.stores[1])
        _ = try await one.offer(HandedOffTask(name: "a", checkpoint: [1], reason: .pressure), heldBy: "gone", for: .zero)
        // A replica that dies at once: the lease is over when it is granted.
        let dead = try #require(try await one.take(["a"], by: "one", for: .zero))
        let work = try #require(try await two.take(["a"], by: "two", for: hour))
        #expect(work.fence == dead.fence + 1 && work.attempts == 2 && dead.attempts == 1)
        let lost = await error { try await one.renew(dead, for: hour, checkpoint: [66]) }
        #expect(lost?.isLostClaim == true && lost?.description.contains("stop working on it") == true)
        try await two.release(work, checkpoint: nil, failure: nil)
        // A stop on request is no attempt.
        let again = try #require(try await one.take(["a"], by: "one", for: hour))
        #expect(again.attempts == 2 && again.checkpoint == [1])
    }

    @Test(arguments: Kind.allCases)
    func `work that never ends, or fails each time, is set aside and can be claimed back`(kind: Kind) async throws {
        var policy = TaskHandoffPolicy()
        policy.mostAttempts = 3
        let place = try await Place(kind, policy: policy), store = place.stores[0]
        _ = try await store.offer(HandedOffTask(name: "kills", checkpoint: [1], reason: .pressure), heldBy: "x", for: .zero)
        _ = try await store.offer(HandedOffTask(name: "fails", checkpoint: [2], reason: .pressure), heldBy: "x", for: .zero)
        for attempt in 1...3 {
            #expect(try await store.take(["kills"], by: "r", for: .zero)?.attempts == attempt)
            let work = try #require(try await store.take(["fails"], by: "r", for: hour))
            #expect(work.attempts == attempt)
            try await store.release(work, checkpoint: [2, UInt8(attempt)], failure: ("it's broken \(attempt)", .zero))
        }
        #expect(try await store.take(["kills", "fails"], by: "r", for: hour) == nil)
        #expect(try await store.census() == (0, 0, 2))
        let aside = try await store.setAside(most: 10)
        #expect(aside.map(\.name) == ["kills", "fails"] && aside.map(\.checkpoint) == [[1], [2, 3]] && aside.allSatisfy { $0.attempts == 3 })
        #expect(aside.first?.problem == "taken 3 times and never ended" && aside.last?.problem == "it's broken 3")
        #expect(try await store.setAside(most: 1).count == 1)
        let isFree = try await store.retry(aside[1].id), isNothing = try await store.retry("nothing")
        #expect(isFree && !isNothing)
        #expect(try await store.take(["kills", "fails"], by: "r", for: hour)?.attempts == 1)
    }

    @Test(arguments: Kind.allCases)
    func `failed work waits for the back-off, and bounds are kept`(kind: Kind) async throws {
        var policy = TaskHandoffPolicy()
        (policy.checkpointLimit, policy.mostTasks) = (.bytes(100), 2)
        let place = try await Place(kind, policy: policy), store = place.stores[0]
        func offer(_ name: String, _ count: Int, id: String? = nil) async throws {
            _ = try await store.offer(
                HandedOffTask(id: id, name: name, checkpoint: Array(repeating: 5, count: count), reason: .pressure), heldBy: "x", for: .zero)
        }
        let large = await error { try await offer("large", 101) }
        #expect(large?.isRefused == true && large?.description.contains("101 bytes") == true && large?.description.contains("100") == true)
        for name in ["", String(repeating: "n", count: 201), "zero\0"] { #expect(await error { try await offer(name, 1) }?.isRefused == true) }
        try await offer("a", 100, id: "first")
        try await offer("a", 100)
        let full = await error { try await offer("a", 1) }
        #expect(full?.isRefused == true && full?.description.contains("because it holds 2 tasks") == true)
        try await offer("a", 1, id: "first")
        let work = try #require(try await store.take(["a"], by: "r", for: hour))
        #expect(work.id == "first", "the oldest first")
        #expect(await error { try await store.renew(work, for: hour, checkpoint: Array(repeating: 0, count: 101)) }?.isRefused == true)
        try await store.release(work, checkpoint: nil, failure: ("later", hour))
        let other = try #require(try await store.take(["a"], by: "r", for: hour))
        #expect(other.id != "first")
        #expect(try await store.take(["a"], by: "r", for: hour) == nil, "what failed waits its hour")
    }

    @Test(arguments: Kind.allCases)
    func `many concurrent takers get each piece of work once`(kind: Kind) async throws {
        let place = try await Place(kind), count = 60
        for number in 0..<count {
            _ = try await place.stores[0].offer(HandedOffTask(name: "a", checkpoint: [UInt8(number)], reason: .pressure), heldBy: "x", for: .zero)
        }
        let taken = try await withThrowingTaskGroup(of: [UInt8].self) { group in
            for replica in 0..<8 {
                group.addTask {
                    var mine: [UInt8] = []
                    while let work = try await place.stores[replica % 2].take(["a"], by: "replica \(replica)", for: .seconds(3600)) {
                        mine.append(contentsOf: work.checkpoint)
                        if mine.count % 2 == 0 { try await place.stores[replica % 2].complete(work) }
                    }
                    return mine
                }
            }
            return try await group.reduce(into: []) { $0 += $1 }
        }
        #expect(taken.sorted() == (0..<count).map { UInt8($0) })
    }
}
