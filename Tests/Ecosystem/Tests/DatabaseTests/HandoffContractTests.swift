import GRDB
import Plimsoll
import PlimsollGRDB
import PlimsollLifecycle
import PlimsollPostgreSQL
import PlimsollTesting
import Synchronization
import TestServers
import Testing

/// What every hand-over store promises, kept by the one in memory, the one in a file and the one in a server.
@Suite(.serialized, .timeLimit(.minutes(5))) struct HandoffContractTests {
    enum Kind: String, CaseIterable, Sendable, CustomTestStringConvertible {
        case memory, sqlite, postgresql
        var testDescription: String { rawValue }
        var isHere: Bool { self != .postgresql || PostgreSQLServer.isInstalled }
    }

    /// One place, and as many stores that look at it as there are replicas.
    private final class Place: Sendable {
        let stores: [any TaskHandoff]
        private let owned: [any Sendable]

        /// Cancels the test, so that it is reported as skipped, where the kind's server is not installed.
        init(_ kind: Kind, limits: TaskHandoffLimits = TaskHandoffLimits()) async throws {
            if !kind.isHere { try Test.cancel("\(kind): \(PostgreSQLServer.reason)") }
            switch kind {
            case .memory:
                let store = MemoryTaskHandoff(limits: limits)
                (stores, owned) = ([store, store], [])
            case .sqlite:
                let directory = try TemporaryDirectory("handoff")
                stores = try (0..<2).map { _ in try SQLiteTaskHandoff(path: directory.path("tasks"), limits: limits, busyTimeout: .seconds(60)) }
                owned = [directory]
            case .postgresql:
                let server = try await PostgreSQLServer()
                (stores, owned) = ([server.store(limits), server.store(limits)], [server])
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
        let offer = TaskHandoffOffer(name: "export 'ü\\", checkpoint: bytes, reason: .pressure)
        let claim = try await one.offer(offer, heldBy: "one", for: hour)
        #expect(try await one.offer(offer, heldBy: "one", for: hour) == claim, "offering again changes nothing")
        #expect(try await one.census() == TaskHandoffCensus(waiting: 0, held: 1, setAside: 0))
        #expect(try await two.take([offer.name], by: "two", for: hour) == nil, "it is held")
        try await one.renew(claim, for: hour, checkpoint: [1])
        try await one.release(claim, checkpoint: bytes + [7], .expired(.shutdown))
        #expect(try await two.take(["other"], by: "two", for: hour) == nil, "not by that name")

        let work = try #require(try await two.take(["other", offer.name], by: "two", for: hour))
        #expect(work.checkpoint == bytes + [7] && work.reason == .shutdown && work.attempt == 1)
        #expect(work.claim.id == offer.id && work.claim.name == offer.name && work.claim.owner == "two" && work.claim.fence == 2)
        #expect(try await one.take([offer.name], by: "one", for: hour) == nil)
        // The old claim holds no more, whatever is tried under it.
        #expect(await error { try await one.renew(claim, for: hour, checkpoint: [9]) }?.kind == .lostClaim)
        #expect(await error { try await one.complete(claim) }?.kind == .lostClaim)
        #expect(await error { try await one.release(claim, checkpoint: [9], .expired(.pressure)) }?.kind == .lostClaim)
        let forged = TaskHandoffClaim(id: work.claim.id, name: work.claim.name, owner: "one", fence: 2)
        #expect(await error { try await one.complete(forged) }?.kind == .lostClaim)
        try await two.complete(work.claim)
        #expect(await error { try await two.complete(work.claim) }?.kind == .lostClaim)
        #expect(try await one.census() == TaskHandoffCensus(waiting: 0, held: 0, setAside: 0))
    }

    @Test(arguments: Kind.allCases)
    func `a lease that ends gives the work to another, under a newer fence`(kind: Kind) async throws {
        let place = try await Place(kind), (one, two) = (place.stores[0], place.stores[1])
        _ = try await one.offer(TaskHandoffOffer(name: "a", checkpoint: [1], reason: .pressure), heldBy: "gone", for: .zero)
        // A replica that dies at once: its lease is over when it is granted.
        let dead = try #require(try await one.take(["a"], by: "one", for: .zero))
        let work = try #require(try await two.take(["a"], by: "two", for: hour))
        #expect(work.claim.fence == dead.claim.fence + 1 && work.attempt == 2 && dead.attempt == 1)
        let lost = await error { try await one.renew(dead.claim, for: hour, checkpoint: [66]) }
        #expect(lost?.kind == .lostClaim && lost?.description.contains("stop working on it") == true)
        try await two.release(work.claim, checkpoint: nil, .expired(.pressure))
        // Having had to stop was no attempt.
        let again = try #require(try await one.take(["a"], by: "one", for: hour))
        #expect(again.attempt == 2 && again.checkpoint == [1])
    }

    @Test(arguments: Kind.allCases)
    func `work that never ends, or fails each time, is set aside and can be claimed back`(kind: Kind) async throws {
        var limits = TaskHandoffLimits()
        limits.attempts = 3
        let place = try await Place(kind, limits: limits), store = place.stores[0]
        _ = try await store.offer(TaskHandoffOffer(name: "kills", checkpoint: [1], reason: .pressure), heldBy: "x", for: .zero)
        _ = try await store.offer(TaskHandoffOffer(name: "fails", checkpoint: [2], reason: .pressure), heldBy: "x", for: .zero)
        for attempt in 1...3 {
            #expect(try await store.take(["kills"], by: "r", for: .zero)?.attempt == attempt)
            let work = try #require(try await store.take(["fails"], by: "r", for: hour))
            #expect(work.attempt == attempt)
            try await store.release(work.claim, checkpoint: [2, UInt8(attempt)], .failed("it's broken \(attempt)", after: .zero))
        }
        #expect(try await store.take(["kills", "fails"], by: "r", for: hour) == nil)
        #expect(try await store.census() == TaskHandoffCensus(waiting: 0, held: 0, setAside: 2))
        let aside = try await store.setAside(most: 10)
        #expect(aside.map(\.name) == ["kills", "fails"] && aside.map(\.checkpoint) == [[1], [2, 3]] && aside.allSatisfy { $0.attempts == 3 })
        #expect(aside.first?.problem == "taken 3 times and never ended" && aside.last?.problem == "it's broken 3")
        #expect(try await store.setAside(most: 1).count == 1)
        let isFree = try await store.retry(aside[1].id), isNothing = try await store.retry("nothing")
        #expect(isFree && !isNothing)
        #expect(try await store.take(["kills", "fails"], by: "r", for: hour)?.attempt == 1)
    }

    @Test(arguments: Kind.allCases)
    func `failed work waits for the back-off, and bounds are kept`(kind: Kind) async throws {
        var limits = TaskHandoffLimits()
        (limits.checkpoint, limits.count) = (.bytes(100), 2)
        let place = try await Place(kind, limits: limits), store = place.stores[0]
        func offer(_ name: String, _ count: Int, id: String? = nil) async throws {
            _ = try await store.offer(
                TaskHandoffOffer(name: name, checkpoint: Array(repeating: 5, count: count), reason: .pressure, id: id), heldBy: "x", for: .zero)
        }
        let large = await error { try await offer("large", 101) }
        #expect(large?.kind == .refused && large?.description.contains("101 bytes") == true && large?.description.contains("100") == true)
        for name in ["", String(repeating: "n", count: 201), "zero\0"] { #expect(await error { try await offer(name, 1) }?.kind == .refused) }
        try await offer("a", 100, id: "first")
        try await offer("a", 100)
        let full = await error { try await offer("a", 1) }
        #expect(full?.kind == .refused && full?.description.contains("because it holds 2 tasks") == true)
        try await offer("a", 1, id: "first")
        let work = try #require(try await store.take(["a"], by: "r", for: hour))
        #expect(work.claim.id == "first", "the oldest first")
        #expect(await error { try await store.renew(work.claim, for: hour, checkpoint: Array(repeating: 0, count: 101)) }?.kind == .refused)
        try await store.release(work.claim, checkpoint: nil, .failed("later", after: hour))
        let other = try #require(try await store.take(["a"], by: "r", for: hour))
        #expect(other.claim.id != "first")
        #expect(try await store.take(["a"], by: "r", for: hour) == nil, "what failed waits its hour")
    }

    @Test(arguments: Kind.allCases)
    func `many concurrent takers get each piece of work once`(kind: Kind) async throws {
        let place = try await Place(kind), count = 60
        for number in 0..<count {
            _ = try await place.stores[0].offer(TaskHandoffOffer(name: "a", checkpoint: [UInt8(number)], reason: .pressure), heldBy: "x", for: .zero)
        }
        let taken = try await withThrowingTaskGroup(of: [UInt8].self) { group in
            for replica in 0..<8 {
                group.addTask {
                    var mine: [UInt8] = []
                    while let work = try await place.stores[replica % 2].take(["a"], by: "replica \(replica)", for: .seconds(3600)) {
                        mine.append(contentsOf: work.checkpoint)
                        if mine.count % 2 == 0 { try await place.stores[replica % 2].complete(work.claim) }
                    }
                    return mine
                }
            }
            return try await group.reduce(into: []) { $0 += $1 }
        }
        #expect(taken.sorted() == (0..<count).map { UInt8($0) })
    }
}
