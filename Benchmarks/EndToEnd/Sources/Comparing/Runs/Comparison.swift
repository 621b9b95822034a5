/// All runs of a comparison, in the order in which they are made.
public struct Comparison: Sendable {
    public var limits: [Int]
    public var loads: [String]
    public var variants: [String]
    public var runs: Int
    public var seconds: Double
    public var warmUp: Double
    public var rate: Double
    public var seed: UInt64

    public init(
        limits: [Int], loads: [String], variants: [String], runs: Int, seconds: Double, warmUp: Double, rate: Double,
        seed: UInt64
    ) {
        self.limits = limits
        self.loads = loads
        self.variants = variants
        self.runs = runs
        self.seconds = seconds
        self.warmUp = warmUp
        self.rate = rate
        self.seed = seed
    }

    /// The runs to make, one variant after another so that a disturbance of the machine affects them alike. The order
    /// of variants is rotated from run to run, so that none is always first.
    public var plans: [RunRecord] {
        var plans: [RunRecord] = []
        for run in 1...max(1, runs) {
            for limit in limits {
                for load in loads {
                    for index in variants.indices {
                        let variant = variants[(index + run - 1) % variants.count]
                        plans.append(
                            RunRecord(
                                limitBytes: limit, load: load, variant: variant, run: run, seed: seed &+ UInt64(run),
                                rate: rate, seconds: seconds,
                                warmUp: warmUp))
                    }
                }
            }
        }
        return plans
    }

    /// Returns the runs that are still to be made where `done` have been.
    public func plans(after done: [RunRecord]) -> [RunRecord] {
        plans.filter { plan in !done.contains { $0.isSamePlan(as: plan) } }
    }
}
