/// One run of one variant, as a line of JSON.
public struct RunRecord: Codable, Sendable {
    public var limitBytes: Int
    public var load: String
    public var variant: String
    /// From 1; runs of the same number have the same seed, so the same trace.
    public var run: Int
    public var seed: UInt64
    public var rate: Double
    public var seconds: Double
    /// Seconds before, which count nowhere.
    public var warmUp: Double
    /// Outcome of the requests; `nil` if the server never listened or the load broke off.
    public var result: LoadResult?
    /// Summary printed by the server at the end; `nil` if the server was killed.
    public var server: ServerSummary?
    /// Processes the kernel killed for want of memory.
    public var oomKills = 0
    /// Seconds from the end of the warm-up until the server was gone; `nil` if the server stayed.
    public var goneAfterSeconds: Double?
    /// Resident bytes, sampled five times a second.
    public var meanResidentBytes = 0.0
    public var peakResidentBytes = 0
    /// The most that was charged to the group, page cache included.
    public var groupPeakBytes: Int?
    /// Processors the server used on average, warm-up included.
    public var processors: Double?
    /// Processors that others used meanwhile, except the load and the kernel's host: the disturbance of the run.
    public var neighbours: Double?
    /// Another reason why the run is not a measurement.
    public var problem: String?

    /// Returns true if both are runs of one plan.
    func isSamePlan(as other: RunRecord) -> Bool {
        limitBytes == other.limitBytes && load == other.load && variant == other.variant && run == other.run
            && seed == other.seed
            && rate == other.rate
            && seconds == other.seconds && warmUp == other.warmUp
    }

    /// True if other processes used at most `most` processors beside the run.
    func isUndisturbed(_ most: Double) -> Bool { neighbours.map { $0 <= most } ?? true }

    /// True if the server ended without a request.
    public var wasKilled: Bool { oomKills > 0 || goneAfterSeconds != nil }
    /// Good answers a second over the whole load, even if the server died during the load.
    public var goodPerSecond: Double { result?.goodPerSecond ?? 0 }
}
