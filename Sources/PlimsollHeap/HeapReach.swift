/// Blocks of the heap to which each of several roots, and no other of them, leads.
///
/// A block that two roots lead to belongs to neither, as an object that all entries of a cache share. All roots are
/// followed at the same pace, so what they share is noticed early, and the search does not go on behind it. A block
/// behind what two roots share may still be counted for a third that leads there as well.
struct HeapReach {
    struct Block {
        var address: UInt64
        var size: Int
        /// Bytes from the start that may have pointers.
        var used: Int
    }

    /// The memory in which blocks lie.
    protocol Memory {
        /// Returns the block to which `word` points; `nil` if the word is no pointer to the start of a block.
        func block(at word: UInt64) -> Block?
        /// Calls `body` with each word of the block's used bytes.
        func forEachWord(of block: Block, _ body: (UInt64) -> Void)
    }

    private struct Found {
        var block: Block
        /// Number of the root; `nil` if several lead to the block.
        var root: Int?
        var isFollowed = false
    }

    /// Bytes for each root.
    private(set) var bytes: [Int] = []
    private var found: [UInt64: Found] = [:]
    private var noBlocks: Set<UInt64> = []
    private var queue: [UInt64] = [], next = 0
    private var wordsLeft: Int

    /// Follows the pointers in the roots' words.
    ///
    /// - Parameter atMost: words to look at.
    /// - Returns: the bytes of blocks for each root; `nil` if the roots lead to more than `atMost` words.
    static func bytes(from roots: [[UInt64]], in memory: some Memory, atMost words: Int) -> [Int]? {
        var reach = HeapReach(count: roots.count, words: words)
        for (root, words) in roots.enumerated() { for word in words { reach.visit(word, from: root, memory) } }
        return reach.follow(memory) ? reach.bytes : nil
    }

    private init(count: Int, words: Int) {
        bytes = Array(repeating: 0, count: count)
        wordsLeft = words
    }

    /// Returns false if there were too many words.
    private mutating func follow(_ memory: some Memory) -> Bool {
        while next < queue.count {
            guard let (block, root) = take(queue[next]) else { continue }
            wordsLeft -= block.used / 8
            guard wordsLeft >= 0 else { return false }
            var pointers: [UInt64] = []
            memory.forEachWord(of: block) { word in
                // Null, small numbers and texts are the most frequent words.
                if word >= 1 << 16 { pointers.append(word) }
            }
            for word in pointers { visit(word, from: root, memory) }
        }
        return true
    }

    private mutating func take(_ address: UInt64) -> (Block, root: Int?)? {
        next += 1
        guard var found = found[address] else { return nil }
        // Blocks that several roots lead to are followed again only to take back what was counted behind them.
        guard found.root != nil || found.isFollowed else { return nil }
        found.isFollowed = true
        self.found[address] = found
        return (found.block, found.root)
    }

    private mutating func visit(_ word: UInt64, from root: Int?, _ memory: some Memory) {
        guard !noBlocks.contains(word) else { return }
        guard let block = memory.block(at: word) else {
            noBlocks.insert(word)
            return
        }
        guard let known = found[block.address] else {
            guard let root else { return }
            found[block.address] = Found(block: block, root: root)
            bytes[root] += block.size
            queue.append(block.address)
            return
        }
        guard let owner = known.root, owner != root else { return }
        bytes[owner] -= known.block.size
        found[block.address]?.root = nil
        if known.isFollowed { queue.append(block.address) }
    }
}
