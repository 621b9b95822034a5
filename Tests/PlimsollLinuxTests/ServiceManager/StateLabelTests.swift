import Foundation
import PlimsollTesting
import Testing

@testable import PlimsollLinux

/// Tests of the names of files that the service manager has kept, read back from the environment.
@Suite struct StateLabelTests {
    @Test(arguments: [
        "", "a", "cart of\n\"Zoë\": 100%", "..", "%", "%41", "a.b.c", "\u{0}", "\u{1F600}",
        String(repeating: "é", count: 50),
    ])
    func `a label reads back as any name and number`(name: String) throws {
        for generation in [0, 1, 4711, ServiceManagerStateStore.mostGeneration] {
            let parsed = try #require(ServiceManagerStateStore.parse(ServiceManagerStateStore.label(name, generation)))
            #expect(parsed.name == name && parsed.generation == generation)
        }
    }

    @Test(arguments: [
        "", "plimsoll", "plimsoll.state.", "plimsoll.state.1", "plimsoll.state..a", "plimsoll.state.x.a",
        "plimsoll.state.-1.a",
        "plimsoll.state.+1.a", "plimsoll.state.01.a", "plimsoll.state. 1.a", "plimsoll.state.1.%",
        "plimsoll.state.1.%4", "plimsoll.state.1.%+1",
        "plimsoll.state.1.%-0", "plimsoll.state.1.%zz", "plimsoll.state.1.%41", "plimsoll.state.1.%c3%a9",
        "plimsoll.state.1.%FF",
        "plimsoll.state.1.a b", "plimsoll.state.1.a:b", "plimsoll.state.1.é", "plimsoll.state.18446744073709551615.a",
        "plimsoll.state.18446744073709551616.a", "plimsoll.state.9223372036854775808.a", "Plimsoll.state.1.a",
        " plimsoll.state.1.a",
    ])
    func `text not written as a label is refused`(text: String) {
        #expect(ServiceManagerStateStore.parse(text) == nil)
    }

    @Test func `a label of random fragments reads back as the label of the result, or is refused`() {
        let environment = ProcessInfo.processInfo.environment
        let seed = environment["PLIMSOLL_SEED"].flatMap { UInt64($0) } ?? .random(in: 0 ... .max)
        let runs = environment["PLIMSOLL_RUNS"].flatMap { Int($0) } ?? 50_000
        print("seed \(seed)")
        var random = SeededGenerator(seed: seed), read = 0
        let fragments = [
            "plimsoll.state.", "1", "18446744073709551615", "%", "%2", "%20", "%3A", "+", "-", ".", "a", "é", ":",
            "\u{0}", "%C3%A9", "0",
        ]
        for _ in 0..<runs {
            var label = Bool.random(using: &random) ? "plimsoll.state.1." : "plimsoll.state."
            for _ in 0..<Int.random(in: 0...6, using: &random) { label += fragments.randomElement(using: &random)! }
            guard let parsed = ServiceManagerStateStore.parse(label) else { continue }
            read += 1
            #expect(
                ServiceManagerStateStore.label(parsed.name, parsed.generation) == label,
                "seed \(seed): \(label.debugDescription)")
            #expect(parsed.generation < .max, "seed \(seed): the next generation can be counted")
        }
        #expect(read > runs / 100, "seed \(seed): \(read) were read")
    }
}
