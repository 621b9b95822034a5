/// The order in which exclusive resources are released.
enum ReleaseOrder {
    /// Returns the resources in waves that may be released concurrently, each after all of `releasedAfter` that is
    /// registered.
    ///
    /// - Complexity: O(resources and their `after:` names).
    static func waves(of resources: [ExclusiveResource]) -> [[ExclusiveResource]] {
        let byName = Dictionary(resources.map { ($0.name, $0) }) { first, _ in first }
        var ranks: [String: Int] = [:]
        func rank(_ resource: ExclusiveResource) -> Int {
            if let rank = ranks[resource.name] { return rank }
            let rank = resource.releasedAfter.compactMap { byName[$0] }.map { rank($0) + 1 }.max() ?? 0
            ranks[resource.name] = rank
            return rank
        }
        var waves: [[ExclusiveResource]] = []
        for resource in resources {
            let rank = rank(resource)
            while waves.count <= rank { waves.append([]) }
            waves[rank].append(resource)
        }
        return waves
    }

    /// Returns the names of the resources that `resource` depends on: those released after it.
    static func dependencies(of resource: ExclusiveResource, in resources: [ExclusiveResource]) -> Set<String> {
        Set(resources.filter { $0.releasedAfter.contains(resource.name) }.map(\.name))
    }

    /// Returns a path from `resource` back to itself along `releasedAfter`; `nil` if there is none. Only the resource
    /// added last can close a cycle.
    static func cycle(through resource: ExclusiveResource, in resources: [ExclusiveResource]) -> [String]? {
        let byName = Dictionary((resources + [resource]).map { ($0.name, $0) }) { first, _ in first }
        var seen: Set<String> = []
        func path(from name: String) -> [String]? {
            guard let next = byName[name], seen.insert(name).inserted else { return nil }
            for earlier in next.releasedAfter {
                if earlier == resource.name { return [name, earlier] }
                if let path = path(from: earlier) { return [name] + path }
            }
            return nil
        }
        return path(from: resource.name)
    }
}
