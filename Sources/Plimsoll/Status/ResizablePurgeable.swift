/// A purgeable with a limit that an operator may change at any time through a manager.
public protocol ResizablePurgeable: CountingPurgeable {
    /// Sets the limit, and evicts the excess. Called from any thread.
    func resize(to limit: ByteCount)
}

extension PurgeableCache: ResizablePurgeable {
    public func resize(to limit: ByteCount) { self.limit = limit }
}

extension VolatileCache: ResizablePurgeable {
    public func resize(to limit: ByteCount) { self.limit = limit }
}

extension ResourceManager {
    /// Sets the limit of the registered cache named `name`. Evicts the excess on the calling thread.
    ///
    /// - Throws: `ResourceManagerError` if no cache or more than one has that name, or if the limit cannot be set.
    public func setLimit(_ limit: ByteCount, ofCacheNamed name: String) throws(ResourceManagerError) {
        let entries = parts.purgeables.snapshot
        let named = entries.filter { $0.name == name }
        guard let entry = named.first else {
            let names = entries.filter { $0.purgeable is any ResizablePurgeable }.prefix(20).map(\.name).joined(separator: ", ")
            throw ResourceManagerError(
                description: "no cache \"\(name)\" is registered; caches with a limit to set are \(names.isEmpty ? "none" : names)")
        }
        guard named.count == 1 else {
            throw ResourceManagerError(
                description: "\(named.count) holders are named \"\(name)\"; give each cache a name of its own to set its limit")
        }
        guard let cache = entry.purgeable as? any ResizablePurgeable else {
            throw ResourceManagerError(description: "the limit of \"\(name)\" can't be set: it is no ResizablePurgeable")
        }
        cache.resize(to: limit)
    }

    /// Sets the limits of the caches with these names, registered now or later, if their limits can be set. Other
    /// caches stay unchanged. Runs on the calling thread.
    package func setLimits(_ limits: [String: ByteCount]) { parts.purgeables.setLimits(limits) }
}

extension PurgeableRegistry.Entry {
    /// Sets the limit, if the purgeable supports that.
    func resize(to limit: ByteCount) { (purgeable as? any ResizablePurgeable)?.resize(to: limit) }
}
