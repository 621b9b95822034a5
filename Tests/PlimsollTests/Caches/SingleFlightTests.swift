import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Callers that are about to load, and find a value that another caller has loaded.
@Suite struct SingleFlightTests {
    enum Form: CaseIterable { case task, thread, manyKeys }

    /// Loads key 1 by one of the forms. `known` reads the cache.
    private func load(
        _ flights: SingleFlight<Int, String>, _ form: Form, _ loaded: String, into answers: Log<String?>,
        known: @escaping @Sendable () -> String?
    ) {
        switch form {
        case .task:
            Task {
                let value = try await flights.value(forKey: 1, tags: [], known: known, load: { _ in loaded })
                answers.add(value)
            }
        case .thread:
            let isStarted = Thread.start("load") {
                answers.add(try? flights.value(forKey: 1, tags: [], known: known, loadNow: { _ in loaded }))
            }
            precondition(isStarted)
        case .manyKeys:
            Task {
                let values = try await flights.values(forKeys: [1], tags: [], known: { _ in known() }) { _ in [1: loaded] }
                answers.add(values[1])
            }
        }
    }

    /// Returns the answers of a caller that finds "old", and of a caller that asks after `next` has replaced "old".
    private func answers(_ first: Form, _ second: Form, next: String?) async -> [String?] {
        let flights = SingleFlight<Int, String>(), stored = Mutex<String?>("old")
        let firstAnswer = Log<String?>(), secondAnswer = Log<String?>()
        load(flights, first, "loaded by the first", into: firstAnswer) {
            let value = stored.withLock { $0 }
            // This code runs after the first reading. A thread of the pool blocks only for a caller on a separate
            // thread.
            if value == "old" {
                stored.withLock { $0 = next }
                load(flights, second, "loaded by the second", into: secondAnswer) { stored.withLock { $0 } }
                blockUntil("the second caller to join") { flights.lineLength(of: 1) == 1 }
            }
            return value
        }
        await until("the answers") { firstAnswer.all.count == 1 && secondAnswer.all.count == 1 }
        return firstAnswer.all + secondAnswer.all
    }

    // A volatile cache's histories found a removal that returned while a load, revoked by another removal, was about to
    // keep its value (seed 2768564231).
    @Test(arguments: [false, true]) func `C67 a revoked load counts as in progress until it has ended`(revokesAll: Bool) async {
        let flights = SingleFlight<Int, String>(), blockade = Blockade(), answers = Log<String?>()
        #expect(!flights.isBusy)
        let isStarted = Thread.start("load") {
            let value = try? flights.value(
                forKey: 1, tags: [], known: { nil },
                loadNow: { flight in
                    blockade.wait()
                    return flight.isRevoked ? "revoked" : "kept"
                })
            answers.add(value)
        }
        #expect(isStarted)
        await until { blockade.count == 1 }
        if revokesAll { flights.revokeAll() } else { flights.revoke(1) }
        #expect(flights.isBusy && flights.lineLength(of: 1) == nil)
        // A second load of the key begins anew, and its end leaves the first one in progress.
        let second = try? await flights.value(forKey: 1, tags: [], known: { nil }, load: { _ in "second" })
        #expect(second == "second" && flights.isBusy)
        blockade.open()
        await until { answers.all == ["revoked"] }
        #expect(!flights.isBusy)
    }

    @Test func `a load that is cancelled without a caller in line is over, also if it was revoked`() async {
        for isRevoked in [false, true] {
            let flights = SingleFlight<Int, String>(), begun = Counter()
            let task = Task {
                try await flights.value(
                    forKey: 1, tags: [], known: { nil },
                    load: { _ in
                        begun.add(1)
                        try await untilCancelled()
                        return "never"
                    })
            }
            await until { begun.value == 1 }
            if isRevoked { flights.revoke(1) }
            #expect(flights.isBusy)
            task.cancel()
            _ = await task.result
            #expect(!flights.isBusy && flights.lineLength(of: 1) == nil)
        }
    }

    static let forms: [(Form, Form)] = [(.task, .thread), (.manyKeys, .thread), (.thread, .thread), (.thread, .task), (.thread, .manyKeys)]

    @Test(arguments: forms)
    func `a caller does not get a value that was replaced before the call`(first: Form, second: Form) async {
        #expect(await answers(first, second, next: "new") == ["old", "new"])
    }

    @Test(arguments: forms)
    func `a caller loads if the value was removed before the call`(first: Form, second: Form) async {
        #expect(await answers(first, second, next: nil) == ["old", "loaded by the second"])
    }
}
