import Plimsoll
import Testing

@testable import PlimsollLinux

/// The judgement of how a process ended.
@Suite struct BoxVerdictTests {
    private func verdict(
        available: ByteCount, growth: ByteCount = .zero, kills: (before: Int?, after: Int?) = (nil, nil)
    ) -> BoxVerdict {
        var contents = BoxContents.of([.reading(at: 1, available: available, growth: growth, kills: kills.before)])
        contents.killsAtNextStart = kills.after
        return BoxVerdict(contents)
    }

    @Test func `an end that the process recorded decides the verdict`() {
        var contents = BoxContents.of([.reading(at: 1, available: .zero)])
        contents.end = .shutdown
        #expect(BoxVerdict(contents).kind == .clean && BoxVerdict(contents).sentence == "ended in good order")
        contents.end = .pressure
        #expect(BoxVerdict(contents).kind == .clean && BoxVerdict(contents).sentence.contains("terminate"))
    }

    @Test func `a risen count of kills decides the verdict, with any amount available`() {
        let certain = verdict(available: .mebibytes(200), kills: (3, 4))
        #expect(certain.kind == .outOfMemory && certain.sentence.contains("rose from 3 to 4"))
        // A new group counts from zero, so an equal or lower count proves nothing.
        for after in [3, 0] { #expect(verdict(available: .mebibytes(200), kills: (3, after)).kind == .unknown) }
        #expect(verdict(available: .mebibytes(200), kills: (nil, 4)).kind == .unknown)
    }

    @Test func `a sixty-fourth of the limit or less available counts as too little`() {
        #expect(verdict(available: .mebibytes(4)).kind == .outOfMemory)
        #expect(verdict(available: .mebibytes(4) + ByteCount(1)).kind == .unknown)
        #expect(verdict(available: .zero - .mebibytes(1)).kind == .outOfMemory)
    }

    @Test func `the memory for a quarter of a second of growth counts as too little`() {
        #expect(verdict(available: .mebibytes(25), growth: .mebibytes(100)).kind == .outOfMemory)
        #expect(verdict(available: .mebibytes(25) + ByteCount(1), growth: .mebibytes(100)).kind == .unknown)
    }

    @Test func `without a reading or a limit the reason is unknown, and the sentence says so`() {
        #expect(BoxVerdict(.of([])).kind == .unknown)
        var sample = BoxContents.Sample.reading(at: 1, available: .zero)
        (sample.available, sample.limit) = (nil, nil)
        #expect(BoxVerdict(.of([sample])).kind == .unknown && BoxVerdict(.of([sample])).sentence.contains("no memory limit"))
        #expect(verdict(available: .mebibytes(100)).sentence.contains("unknown reason"))
    }
}
