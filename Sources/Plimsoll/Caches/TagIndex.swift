/// Which slots of a cache's part bear which tag, oldest first.
///
/// A list a tag, linked through nodes in one array, a node for each tag of an entry: adding and removing are O(tags of the entry), and removing hashes no text
/// but that of a tag nobody bears any more. What bears no tag is not in it at all.
struct TagIndex: Sendable {
    private struct Node: Sendable {
        var slot: Int32
        var list: Int32
        var older: Int32
        var newer: Int32
        /// The next tag of the same slot.
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
    /// What is added from now on has this number or a greater one.
    private(set) var sequence: UInt64 = 0

    /// Adds `slot` under each of `tags`.
    ///
    /// - Returns: the first of its nodes, to `remove` it by; `none` without tags.
    mutating func add(_ slot: Int32, _ tags: [String]) -> Int32 {
        var first = Self.none
        for (position, tag) in tags.enumerated() where !tags[..<position].contains(tag) {
            let node = takeNode()
            let list = listNumber(of: tag)
            nodes[Int(node)] = Node(slot: slot, list: list, older: lists[Int(list)].newest, newer: Self.none, next: first, sequence: sequence)
            if lists[Int(list)].newest == Self.none { lists[Int(list)].oldest = node } else { nodes[Int(lists[Int(list)].newest)].newer = node }
            lists[Int(list)].newest = node
            lists[Int(list)].count += 1
            sequence += 1
            first = node
        }
        return first
    }

    /// Takes out the slot whose first node that is. Allocates nothing.
    mutating func remove(_ first: Int32) {
        var node = first
        while node != Self.none {
            let (list, older, newer, next) = (nodes[Int(node)].list, nodes[Int(node)].older, nodes[Int(node)].newer, nodes[Int(node)].next)
            if older == Self.none { lists[Int(list)].oldest = newer } else { nodes[Int(older)].newer = newer }
            if newer == Self.none { lists[Int(list)].newest = older } else { nodes[Int(newer)].older = older }
            lists[Int(list)].count -= 1
            if lists[Int(list)].count == 0 { drop(list) }
            nodes[Int(node)].next = freeNode
            freeNode = node
            node = next
        }
    }

    /// What had that first node is in another slot now.
    mutating func move(_ first: Int32, to slot: Int32) {
        var node = first
        while node != Self.none {
            nodes[Int(node)].slot = slot
            node = nodes[Int(node)].next
        }
    }

    /// The tags of the slot whose first node that is, in the order in which they were added.
    func names(_ first: Int32) -> [String] {
        var names: [String] = [], node = first
        while node != Self.none {
            names.append(lists[Int(nodes[Int(node)].list)].tag)
            node = nodes[Int(node)].next
        }
        return names.reversed()
    }

    /// The slot that bears `tag` the longest, if it was added before `sequence`.
    func oldest(_ tag: String, before sequence: UInt64) -> Int32? {
        guard let list = numbers[tag] else { return nil }
        let node = nodes[Int(lists[Int(list)].oldest)]
        return node.sequence < sequence ? node.slot : nil
    }

    /// How many slots bear `tag`.
    func count(_ tag: String) -> Int { numbers[tag].map { lists[Int($0)].count } ?? 0 }

    /// Tags that something bears.
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
            // Room for each list to be unused some day: who evicts under pressure must not have to ask for it.
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
