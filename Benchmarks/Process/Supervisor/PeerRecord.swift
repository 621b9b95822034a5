import Plimsoll
import PlimsollDemos

/// Outcome of the trio as services of systemd. All times are since all of them had begun.
struct PeerRecord {
    /// One observation of all members.
    struct Sample {
        /// Members that have processes.
        var alive: Set<String> = []
        /// Members that have accepted an order since the previous observation.
        var serving: Set<String> = []
        /// Number of processes that the kernel has OOM-killed.
        var kills = 0
    }

    struct End: Equatable {
        var name: String
        var at: Duration
        /// True if the kernel ended the member; false if the keeper did.
        var isKernels: Bool
    }

    let keeper: PeerPlay.Keeper
    /// Length of the observation.
    let length: Duration
    private(set) var ends: [End] = []
    private var begun: Set<String> = []
    private var servedAt: [String: Duration] = [:]
    private var pauses: [String: Duration] = [:]
    /// The machine's stall time on memory.
    var stalls = Stalls()
    /// Orders accepted and not saved. Leaves out a member that still grew when the observation ended.
    var lost: [String: Int] = [:]

    init(keeper: PeerPlay.Keeper, length: Duration) { (self.keeper, self.length) = (keeper, length) }

    mutating func take(_ sample: Sample, at: Duration) {
        for name in Trio.members.map(\.name)
        where begun.contains(name) && !sample.alive.contains(name) && !hasEnded(name) {
            ends.append(End(name: name, at: at, isKernels: sample.kills > ends.count(where: \.isKernels)))
        }
        begun.formUnion(sample.alive)
        for name in sample.serving {
            pauses[name, default: .zero] += Self.pause(from: servedAt[name] ?? .zero, to: at)
            servedAt[name] = at
        }
    }

    func hasEnded(_ name: String) -> Bool { ends.contains { $0.name == name } }

    /// An order is accepted every 10 ms; under emulation some are late. A quarter of a second is a noticeable pause.
    private static func pause(from: Duration, to: Duration) -> Duration {
        to - from > .milliseconds(250) ? to - from : .zero
    }
}

// Figures for the report.
extension PeerRecord {
    /// Time in which the innocent members accepted no orders, frozen or gone.
    var unserved: Duration {
        Trio.innocent.reduce(.zero) { $0 + (pauses[$1] ?? .zero) + Self.pause(from: servedAt[$1] ?? .zero, to: length) }
    }

    /// True if the innocent members are alive and lost no orders. `unserved` tells whether they were of use
    /// meanwhile.
    var survived: Bool {
        Trio.innocent.allSatisfy { name in begun.contains(name) && !hasEnded(name) && lost[name] == 0 }
    }

    static let header = ["who", "ended", "orders lost", "stalled, some", "all", "not served"]

    var row: [String] {
        func seconds(_ time: Duration) -> String { Text.fixed(time.inSeconds, decimals: 1) + " s" }
        let endings = ends.map {
            "\($0.name) after \(seconds($0.at))" + ($0.isKernels && keeper != .kernel ? " by the kernel" : "")
        }
        let losers = Trio.members.map(\.name).filter { lost[$0] ?? 0 > 0 }.map { "\($0) \(lost[$0]!)" }
        return [
            keeper.rawValue, endings.isEmpty ? "nobody" : endings.joined(separator: ", "),
            losers.isEmpty ? "none" : losers.joined(separator: ", "),
            seconds(stalls.some), seconds(stalls.full), seconds(unserved),
        ]
    }

    /// Stall times of the whole machine, since boot.
    struct Stalls {
        /// Time in which at least one process waited for memory.
        var some = Duration.zero
        /// Time in which all runnable processes waited for memory.
        var full = Duration.zero

        static var now: Stalls {
            let lines = (ControlFile.text("/proc/pressure/memory") ?? "").split(separator: "\n")
            func total(_ kind: String) -> Duration {
                let line = lines.first { $0.hasPrefix(kind) }
                return .microseconds(
                    line?.split(separator: " ").last.flatMap { Int($0.dropFirst("total=".count)) } ?? 0)
            }
            return Stalls(some: total("some"), full: total("full"))
        }

        static func - (later: Stalls, earlier: Stalls) -> Stalls {
            Stalls(some: later.some - earlier.some, full: later.full - earlier.full)
        }
    }
}
