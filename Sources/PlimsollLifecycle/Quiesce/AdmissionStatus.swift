import Plimsoll

extension AdmissionStatus {
    init(_ member: any CountingQuiescable) {
        let statistics = member.statistics
        self.init(
            name: member.name, running: statistics.running, waiting: statistics.waiting, limit: statistics.limit,
            admitted: statistics.admitted, refused: statistics.refused,
            // A member may return any number; JSON cannot express infinity.
            refusedPerSecond: member.refusedPerSecond.flatMap { $0.isFinite ? $0 : nil },
            expired: statistics.expired, requests: member.requests)
    }
}
