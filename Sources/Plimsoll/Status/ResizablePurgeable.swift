/// A holder whose limit may be set while it is used: by an operator, through a manager.
public protocol ResizablePurgeable: CountingPurgeable {
    /// Holds no more than `limit` from now on, and lets go of what exceeds it. Called from any thread.
    func resize(to limit: ByteCount)
}

extension PurgeableCache: ResizablePurgeable {
    public func resize(to limit: ByteCount) { self.limit = limit }
}

extension VolatileCache: ResizablePurgeable {
    public func resize(to limit: ByteCount) { self.limit = limit }
}

extension ResourceManager {
    /// Sets the limit of the registered cache of that name. On the calling thread, which lets go of what exceeds it.
    ///
    /// - Throws: `ResourceManagerError` if none, or more than one, has that name, or its limit can't be set.
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

    /// Limits the caches of these names, registered now or later, whose limits can be set; others stay as they are. On the calling thread.
    package func setLimits(_ limits: [String: ByteCount]) { parts.purgeables.setLimits(limits) }
}

extension PurgeableRegistry.Entry {
    /// Does nothing if its limit can't be set.
    func resize(to limit: ByteCount) { (purgeable as? any ResizablePurgeable)?.resize(to: limit) }
}
