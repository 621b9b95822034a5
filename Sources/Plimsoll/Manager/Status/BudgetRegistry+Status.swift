extension BudgetRegistry {
    /// The requests that run now, those that hold most listed.
    var status: RequestsStatus {
        let all = all.map { (budget: $0, held: $0.held.bytes) }
        let largest = all.sorted { $0.held > $1.held }.prefix(ManagerStatus.mostRequests)
        let ended = ended
        return RequestsStatus(
            isMetered: Self.isMetered, running: all.count, heldBytes: all.reduce(0) { $0 &+ $1.held },
            cancelledOverLimit: ended.overLimit, cancelledForPressure: ended.forPressure,
            largest: largest.map { budget, held in
                RequestsStatus.Request(
                    name: budget.name, heldBytes: held, peakBytes: max(held, budget.peak.bytes),
                    limitBytes: budget.limit?.bytes, isCancelled: budget.excess != nil)
            })
    }
}
