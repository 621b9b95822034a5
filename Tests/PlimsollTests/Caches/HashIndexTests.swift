import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The index of volatile caches by itself, with hashes that the tests choose.
@Suite(.needsLinux) struct HashIndexTests {
    struct Entry {
        var word: SlotWord
        var hash: UInt64
    }

    /// An index, and the hashes of the items that its slots name. An item that is gone has no hash.
    final class Fixture {
        let index = HashIndex()
        var hashes: [UInt64: UInt64] = [:]

        func insert(_ entry: Entry) -> HashIndex.Placement {
            hashes[entry.word.place] = entry.hash
            return index.insert(entry.word, entry.hash, hashOf: { word in hashes[word.place] })
        }

        func isPlaced(_ entry: Entry) -> Bool {
            if case .placed = insert(entry) { return true }
            return false
        }

        func finds(_ entry: Entry) -> Bool {
            guard let slot = index.find(entry.word, entry.hash) else { return false }
            return slot.pointee.load(ordering: .relaxed) == entry.word.bits
        }
    }

    /// A hash whose two buckets are in the middle of a page.
    private static let alike: UInt64 = 0x0123_4567_89AB_CDEF

    /// Returns the entry of a number. Different numbers have different places.
    private static func entry(_ number: Int, hash: UInt64? = nil) -> Entry {
        let hash = hash ?? VolatileReference.hash(number)
        return Entry(word: SlotWord(segment: number / 1000, offset: (number % 1000 + 1) * 8, hash: hash), hash: hash)
    }

    // MARK: Entries

    @Test func `every word is found under its hash, and pages are mostly full before they split`() {
        let fixture = Fixture(), index = fixture.index
        #expect(index.count == 0 && index.pageCount == 1 && index.holdsNothing)
        let entries = (0..<6000).map { Self.entry($0) }
        #expect(entries.allSatisfy { fixture.isPlaced($0) })
        #expect(entries.allSatisfy { fixture.finds($0) })
        #expect(index.count == 6000 && index.pageCount <= 24, "\(index.pageCount) pages")
        #expect(!fixture.finds(Self.entry(6000)) && !fixture.finds(Self.entry(1, hash: Self.alike)))
    }

    @Test func `an emptied index has no entries, and takes new ones`() {
        let fixture = Fixture(), index = fixture.index
        for number in 0..<1000 where !fixture.isPlaced(Self.entry(number)) { Issue.record("no room") }
        index.removeAll()
        #expect(index.count == 0 && index.holdsNothing)
        #expect(fixture.isPlaced(Self.entry(1)) && fixture.finds(Self.entry(1)) && index.count == 1)
    }

    @Test func `candidates are the slots of both buckets with the tag, each once`() {
        let other = Self.alike ^ 1 << 20
        for counts in [(1, 0), (5, 5), (8, 8), (16, 0), (3, 13)] {
            let fixture = Fixture()
            let entries = (0..<counts.0).map { Self.entry($0, hash: Self.alike) }
            let others = (0..<counts.1).map { Self.entry(100 + $0, hash: other) }
            #expect((entries + others).allSatisfy { fixture.isPlaced($0) })
            guard let page = fixture.index.page(of: Self.alike) else { return #expect(Bool(false), "no page") }
            for (hash, expected) in [(Self.alike, entries), (other, others)] {
                var candidates = HashIndex.candidates(hash, SlotWord.tag(of: hash), in: page), found: [UInt64] = []
                while let slot = candidates.next() { found.append(slot.pointee.load(ordering: .relaxed)) }
                #expect(found.sorted() == expected.map(\.word.bits).sorted(), "\(counts)")
            }
            withExtendedLifetime(fixture) {}
        }
    }

    @Test func `a slot word holds every segment number, place, tag and number of uses`() {
        let rows: [(segment: Int, offset: Int, hash: UInt64, uses: UInt64)] = [
            (0, 8, 0, 0), (1, 16, 1 << 12, 1), (0x8_0000, 1 << 20, 1 << 35, 2), (0xF_FFFF, (2 << 20) - 8, .max, 3),
        ]
        for row in rows {
            let word = SlotWord(segment: row.segment, offset: row.offset, hash: row.hash, uses: row.uses)
            #expect(word.segment == row.segment && word.offset == row.offset && word.uses == row.uses)
            #expect(word.tag == (row.hash >> 12) & 0xFF_FFFF && !word.isEmpty)
            #expect(word.place == SlotWord(segment: row.segment, offset: row.offset, hash: row.hash).bits)
        }
        #expect(SlotWord(bits: 0).isEmpty && SlotWord.tag(of: 1 << 36) == 0 && SlotWord.tag(of: 1 << 11) == 0)
    }

    // MARK: Full buckets

    @Test func `an item that is gone gives way before the page is split, in either bucket`() {
        for bucket in [HashIndex.bucket(Self.alike), HashIndex.otherBucket(Self.alike)] {
            let fixture = Fixture(), index = fixture.index
            let entries = (0..<16).map { Self.entry($0, hash: Self.alike) }
            #expect(entries.allSatisfy { fixture.isPlaced($0) })
            guard let page = index.page(of: Self.alike) else { return #expect(Bool(false), "no page") }
            let inBucket = entries.filter { entry in
                guard let slot = index.find(entry.word, entry.hash) else { return false }
                let place = (Int(bitPattern: slot) - Int(bitPattern: page)) / 8
                return bucket..<bucket + HashIndex.bucketSlots ~= place
            }
            guard inBucket.count == 8 else { return #expect(Bool(false), "\(inBucket.count) entries in a bucket") }
            fixture.hashes[inBucket[2].word.place] = nil
            #expect(fixture.isPlaced(Self.entry(100, hash: Self.alike)))
            #expect(index.pageCount == 1 && index.count == 16 && !fixture.finds(inBucket[2]))
            #expect(fixture.finds(Self.entry(100, hash: Self.alike)) && entries.filter { fixture.finds($0) }.count == 15)
        }
    }

    @Test func `a split forgets items that are gone, and keeps the others`() {
        let fixture = Fixture(), index = fixture.index
        let entries = (0..<100).map { Self.entry($0) }
        #expect(entries.allSatisfy { fixture.isPlaced($0) } && index.pageCount == 1)
        for entry in entries[..<50] { fixture.hashes[entry.word.place] = nil }
        var number = 1000
        while index.pageCount == 1, number < 1020 {
            _ = fixture.insert(Self.entry(number, hash: Self.alike))
            number += 1
        }
        #expect(index.pageCount > 1 && !entries[..<50].contains { fixture.finds($0) })
        // One of the others may have had to go for an entry whose hash is like many.
        let kept = entries[50...].filter { fixture.finds($0) }.count
        let alike = (1000..<number).filter { fixture.finds(Self.entry($0, hash: Self.alike)) }.count
        #expect(kept >= 49 && index.count == kept + alike, "\(kept) and \(alike) of \(index.count)")
    }

    @Test func `entries of one hash displace each other, and do not grow the index without bound`() {
        let fixture = Fixture(), index = fixture.index
        // The numbers differ so much that the entries displace different slots.
        var known = (0..<16).map { Self.entry($0 * 8, hash: Self.alike) }
        #expect(known.allSatisfy { fixture.isPlaced($0) } && index.pageCount == 1)
        // Three splits for an entry, and none once the directory has sixteen times as many entries as there are pages.
        for (step, pages) in [4, 7, 9, 9, 9, 9].enumerated() {
            let new = Self.entry((16 + step) * 8, hash: Self.alike)
            guard case .displaced(let old) = fixture.insert(new) else { return #expect(Bool(false), "entry \(step) displaced none") }
            #expect(known.contains { $0.word == old } && index.find(old, Self.alike) == nil, "entry \(step)")
            known.removeAll { $0.word == old }
            known.append(new)
            #expect(known.allSatisfy { fixture.finds($0) } && index.count == 16, "entry \(step)")
            #expect(index.pageCount == pages, "entry \(step)")
        }
    }

    // MARK: Pages

    @Test func `a sweep looks at every page, a few at a time, and begins again after the last`() {
        let fixture = Fixture(), index = fixture.index
        let entries = (0..<3000).map { Self.entry($0) }
        for round in 0..<3 {
            #expect(entries.allSatisfy { fixture.isPlaced($0) } && index.count == 3000)
            let pages = index.pageCount
            var ends = 0
            for _ in 0..<pages where index.sweep(pages: 1, isGone: { _ in true }) { ends += 1 }
            #expect(pages > 2 && ends == 0 && index.count == 0 && index.holdsNothing, "round \(round)")
            #expect(index.sweep(pages: 1, isGone: { _ in true }), "round \(round)")
        }
        #expect(entries.allSatisfy { fixture.isPlaced($0) })
        #expect(index.sweep(pages: index.pageCount + 1, isGone: { $0.segment == 1 }))
        #expect(index.count == 2000 && entries.allSatisfy { fixture.finds($0) == ($0.word.segment != 1) })
    }

    @Test func `the index takes memory in few parts, each as large as all before at most`() {
        let index = HashIndex(), huge = 2 << 20
        var pages = [index.pageAddress(0)]
        while pages.count < 1500 {
            let (used, arenas) = (index.pageCount * HashIndex.pageBytes, index.arenas.count)
            guard let page = index.takePage() else { return #expect(Bool(false), "no page") }
            pages.append(page)
            guard index.arenas.count > arenas, let arena = index.arenas.last else { continue }
            #expect(arena.bytes <= max(64 << 10, used) && arena.bytes <= huge, "after \(pages.count) pages")
            #expect(arena.bytes < huge || UInt(bitPattern: arena.start) % UInt(huge) == 0)
        }
        #expect(index.pageCount == 1500 && index.arenas.count <= 10, "\(index.arenas.count) parts")
        #expect((0..<1500).allSatisfy { index.pageAddress($0) == pages[$0] } && Set(pages.map { UInt(bitPattern: $0) }).count == 1500)
    }
}

extension HashIndex {
    /// True if no slot of any page is in use.
    var holdsNothing: Bool {
        (0..<pageCount).allSatisfy { number in
            let page = pageAddress(number)
            return (0..<Self.slots).allSatisfy { page[$0].load(ordering: .relaxed) == 0 }
        }
    }
}
