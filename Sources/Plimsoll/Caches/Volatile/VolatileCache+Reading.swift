import CPlimsollMemory
import Synchronization

extension VolatileCache {
    @usableFromInline
    enum Reading<R> {
        case good(R)
        /// The bytes were taken, or moved, during the copy.
        case lost
        /// The bytes are intact but encode no value.
        case unreadable
    }

    /// Repeats the look-up of a key until the bytes were read whole or there is no entry.
    ///
    /// - Parameter isCounted: false for the second check of a look-up that has missed.
    @inlinable
    func read<R>(_ key: Key, isCounted: Bool = true, _ body: (VolatileStore, VolatileStore.Found) -> Reading<R>) -> R? {
        let result: R?? = withKey(key) { hash, keyBytes, isSame in
            while let found = store.find(hash, keyBytes, isSame: isSame) {
                switch body(store, found) {
                case .good(let result):
                    if isCounted { store.noteHit(found, hash) }
                    return result
                case .lost:
                    if store.hasMoved(found) { continue }
                case .unreadable:
                    store.remove(found)
                }
                break
            }
            if isCounted { store.noteMiss(hash) }
            return nil
        }
        return result ?? nil
    }

    /// Calls `body` with the key's hash and bytes, and with a predicate that returns true for bytes of the same key.
    @inlinable
    func withKey<R>(_ key: Key, _ body: (UInt64, UnsafeRawBufferPointer, (UnsafeRawBufferPointer) -> Bool) -> R) -> R? {
        let hash = UInt64(truncatingIfNeeded: key.hashValue)
        return try? key.withEncodedBytes { bytes in body(hash, bytes) { Self.key($0) == key } }
    }

    /// Returns the key that `bytes` encode; `nil` if they encode none.
    @inlinable
    static func key(_ bytes: UnsafeRawBufferPointer) -> Key? { try? Key(decoding: bytes.bytes) }

    @usableFromInline
    static func number(of tag: String) -> UInt64 { UInt64(truncatingIfNeeded: tag.hashValue) }
}

extension VolatileStore {
    @inlinable
    func copy(_ found: Found, to buffer: UnsafeMutableRawBufferPointer) -> Bool {
        // An empty value has no buffer, but the page is checked all the same.
        buffer.baseAddress.map { copy(found, to: $0) } ?? isThere(found)
    }

    /// Returns true if an item without bytes is still there.
    @usableFromInline
    func isThere(_ found: Found) -> Bool {
        Segment.sentinel(found.base, found.word.offset).pointee.load(ordering: .acquiring) == found.generation
    }
}

extension VolatileCache {
    /// Makes the kernel reclaim pages of sealed segments now, as under memory pressure. Takes the pages for which
    /// `isTaken` returns true, given the numbers of the segment and of the page in that segment. For tests and the
    /// torture.
    package func reclaim(where isTaken: (_ segment: Int, _ page: Int) -> Bool) {
        store.withLog(()) { log in
            for (number, segment) in log.segments.enumerated() {
                guard let segment, segment.isSealed else { continue }
                for page in 0..<segment.frontier / PageLayout.page where isTaken(number, page) {
                    let offset = page * PageLayout.page
                    _ = plimsoll_reclaim(segment.base + offset, PageLayout.page)
                    // A page in another processor's batch of pages to be sorted into the lists escapes reclaim
                    // (mm/swap.c), but not this call.
                    if segment.isThere(offset) { _ = plimsoll_drop(segment.base + offset, PageLayout.page) }
                }
            }
        }
    }
}
