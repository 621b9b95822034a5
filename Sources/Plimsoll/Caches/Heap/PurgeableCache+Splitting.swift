import Synchronization

extension PurgeableCache {
    /// Moves half of a full shard into a new shard, keeping the order of the queues.
    @usableFromInline
    func split(_ hash: UInt32) {
        let _: Bool = withShardToWrite(of: hash) { old, table in
            guard table.count >= Self.splitCount, table.depth < directory.depth else { return false }
            let depth = table.depth + 1
            let new = Layout.shard(depth: depth)
            // No other thread knows the new shard yet, so taking the second lock cannot deadlock.
            new.lock.pointee.withLock { other in
                table.split(into: &other, bit: 32 - depth) { from, to in
                    let (from, to) = (old.place(from, Layout.pairSize).pair, new.place(to, Layout.pairSize).pair)
                    Layout.move(from, to)
                }
            }
            directory.set(directory.range(of: hash | 1 << (32 - depth), depth: depth), new)
            return true
        }
    }
}
