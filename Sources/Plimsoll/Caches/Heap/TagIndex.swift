/// Index from tags to the slots of a shard, oldest first.
///
/// Each tag has a linked list, and all nodes lie in one array. An entry has a node for each of its tags. Adding and
/// removing are O(tags of the entry). Removing hashes a string only if the last entry of that tag leaves. Slots
/// without tags are not in the index.
struct TagIndex: Sendable {
    private struct Node: Sendable {
        var slot: Int32
        var list: Int32
        var older: Int32
        var newer: Int32
        /// Next node of the same slot.
        var next: Int32
        var sequence: UInt64
    }

    private struct List: Sendable {
        var tag: String
        var oldest = TagIndex.none
        var newest = TagIndex.none
        var count = 0
    }

    static var none: Int32 { -1 }

    private var numbers: [String: Int32] = [:]
    private var lists: ContiguousArray<List> = []
    private var freeLists: ContiguousArray<Int32> = []
    private var nodes: ContiguousArray<Node> = []
    private var freeNode = none
    /// Sequence number of the next node; nodes added from now on have this number or a greater one.
    private(set) var sequence: UInt64 = 0

    /// Adds `slot` under each of `tags`.
    ///
    /// - Returns: the slot's first node, for `remove`; `none` without tags.
    mutating func add(_ slot: Int32, _ tags: [String]) -> Int32 {
        var first = Self.none
        for (position, tag) in tags.enumerated() where !tags[..<position].contains(tag) {
            let node = takeNode()
            let list = listNumber(of: tag)
            nodes[Int(node)] = Node(
                slot: slot, list: list, older: lists[Int(list)].newest, newer: Self.none, next: first,
                sequence: sequence)
            if lists[Int(list)].newest == Self.none {
                lists[Int(list)].oldest = node
            } else {
                nodes[Int(lists[Int(list)].newest)].newer = node
            }
            lists[Int(list)].newest = node
            lists[Int(list)].count += 1
            sequence += 1
            first = node
        }
        return first
    }

    /// Removes the slot whose first node is `first`. Allocates nothing.
    mutating func remove(_ first: Int32) {
        var node = first
        while node != Self.none {
            let (list, older, newer, next) = (
                nodes[Int(node)].list, nodes[Int(node)].older, nodes[Int(node)].newer, nodes[Int(node)].next
            )
            if older == Self.none { lists[Int(list)].oldest = newer } else { nodes[Int(older)].newer = newer }
            if newer == Self.none { lists[Int(list)].newest = older } else { nodes[Int(newer)].older = older }
            lists[Int(list)].count -= 1
            if lists[Int(list)].count == 0 { drop(list) }
            nodes[Int(node)].next = freeNode
            freeNode = node
            node = next
        }
    }

    /// Records that the entry whose first node is `first` has moved to `slot`.
    mutating func move(_ first: Int32, to slot: Int32) {
        var node = first
        while node != Self.none {
            nodes[Int(node)].slot = slot
            node = nodes[Int(node)].next
        }
    }

    /// Returns the tags of the slot whose first node is `first`, in the order of adding.
    func names(_ first: Int32) -> [String] {
        var names: [String] = [], node = first
        while node != Self.none {
            names.append(lists[Int(nodes[Int(node)].list)].tag)
            node = nodes[Int(node)].next
        }
        return names.reversed()
    }

    /// Returns the slot that has had `tag` the longest, if the slot was added before `sequence`.
    func oldest(_ tag: String, before sequence: UInt64) -> Int32? {
        guard let list = numbers[tag] else { return nil }
        let node = nodes[Int(lists[Int(list)].oldest)]
        return node.sequence < sequence ? node.slot : nil
    }

    /// Returns the number of slots with `tag`.
    func count(_ tag: String) -> Int { numbers[tag].map { lists[Int($0)].count } ?? 0 }

    var tagCount: Int { numbers.count }

    private mutating func takeNode() -> Int32 {
        guard freeNode != Self.none else {
            nodes.append(Node(slot: 0, list: 0, older: Self.none, newer: Self.none, next: Self.none, sequence: 0))
            return Int32(nodes.count - 1)
        }
        defer { freeNode = nodes[Int(freeNode)].next }
        return freeNode
    }

    private mutating func listNumber(of tag: String) -> Int32 {
        if let number = numbers[tag] { return number }
        let number: Int32
        if let free = freeLists.popLast() {
            lists[Int(free)] = List(tag: tag)
            number = free
        } else {
            lists.append(List(tag: tag))
            number = Int32(lists.count - 1)
            // Reserve room for every list to become free: eviction under pressure must not allocate.
            freeLists.reserveCapacity(lists.capacity)
        }
        numbers[tag] = number
        return number
    }

    private mutating func drop(_ list: Int32) {
        numbers.removeValue(forKey: lists[Int(list)].tag)
        lists[Int(list)].tag = ""
        freeLists.append(list)
    }
}
