import Logging  // of the trait "Service"
import Plimsoll
import PlimsollLifecycle

/// Logs the begin and the end of refusals by a manager's shedders, one line each.
struct ShedLog {
    private let manager: ResourceManager
    private let logger: Logger

    /// Interval between checks. Equals the interval of metrics updates, so an idle service gets no additional
    /// wake-ups. An episode that begins and ends between two checks gets only the second line.
    static let interval = Duration.seconds(5)

    init(_ manager: ResourceManager, _ logger: Logger) { (self.manager, self.logger) = (manager, logger) }

    func poll() {
        for case let shedder as RequestShedder in manager.lifecycle.pausables.countingMembers {
            for news in shedder.takeNews() { log(news, of: printable(shedder.name, atMost: 64)) }
        }
    }

    private func log(_ news: ShedEpisodes.News, of name: String) {
        switch news {
        case .began(let extent):
            var metadata: Logger.Metadata = [
                "plimsoll.shedder": "\(name)", "plimsoll.level": "\(manager.level)", "plimsoll.extent": "\(extent)",
            ]
            if let memory = manager.memoryStatus {
                metadata["plimsoll.evidence"] = "\(memory.heldFor ?? memory.evidence)"
            }
            logger.notice("started to refuse requests: \(Self.why(extent))", metadata: metadata)
        case .ended(let times, let lasted, let counts):
            var priorities: [String] = [], reasons: [String] = [], all: UInt64 = 0
            for priority in RequestPriority.allCases {
                let count = RequestRefusal.Reason.allCases.reduce(0) { $0 &+ counts[ShedEpisodes.index(priority, $1)] }
                if count > 0 { priorities.append("\(count) \(priority)") }
                all &+= count
            }
            for reason in RequestRefusal.Reason.allCases {
                let count = RequestPriority.allCases.reduce(0) { $0 &+ counts[ShedEpisodes.index($1, reason)] }
                if count > 0 { reasons.append("\(count) \(reason.rawValue)") }
            }
            let often = times > 1 ? ", in \(times) shortages" : ""
            logger.notice(
                "stopped refusing requests: \(all) refused in \(lasted.brief)\(often)",
                metadata: [
                    "plimsoll.shedder": "\(name)", "plimsoll.refused": "\(priorities.joined(separator: ", "))",
                    "plimsoll.reason": "\(reasons.joined(separator: ", "))", "plimsoll.took": "\(lasted.brief)",
                    "plimsoll.times": "\(times)",
                ])
        }
    }

    private static func why(_ extent: QuiesceExtent) -> String {
        extent.share == .whole ? "the process accepts no work at present" : "memory is short"
    }
}
