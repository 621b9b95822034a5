import Plimsoll

/// How the trio fared as services of systemd. All times are since all of them had begun.
struct PeerRecord {
    /// What was seen of the members at once.
    struct Look {
        /// Those that have processes.
        var alive: Set<String> = []
        /// Those that have taken an order since the look before.
        var serving: Set<String> = []
        /// Processes that the kernel has killed for want of memory.
        var kills = 0
    }

    struct End: Equatable {
        var name: String
        var at: Duration
        /// Else by whoever looks after the services.
        var isKernels: Bool
    }

    let keeper: PeerPlay.Keeper
    /// How long they were looked at.
    let length: Duration
    private(set) var ends: [End] = []
    private var begun: Set<String> = []
    private var servedAt: [String: Duration] = [:]
    private var pauses: [String: Duration] = [:]
    /// What the machine stalled on memory.
    var stalls = Stalls()
    /// Orders that were accepted and not saved, of all but one that still grew when nobody looked any more.
    var lost: [String: Int] = [:]

    init(keeper: PeerPlay.Keeper, length: Duration) { (self.keeper, self.length) = (keeper, length) }

    mutating func take(_ look: Look, at: Duration) {
        for name in Trio.members.map(\.name) where begun.contains(name) && !look.alive.contains(name) && !hasEnded(name) {
            ends.append(End(name: name, at: at, isKernels: look.kills > ends.count(where: \.isKernels)))
        }
        begun.formUnion(look.alive)
        for name in look.serving {
            pauses[name, default: .zero] += Self.pause(from: servedAt[name] ?? .zero, to: at)
            servedAt[name] = at
        }
    }

    func hasEnded(_ name: String) -> Bool { ends.contains { $0.name == name } }

    /// An order is taken every 10 ms; under emulation some are late. A quarter of a second is what somebody would notice.
    private static func pause(from: Duration, to: Duration) -> Duration { to - from > .milliseconds(250) ? to - from : .zero }
}

// What is told of it.
extension PeerRecord {
    /// How long those that did nothing wrong took no orders, whether they stood still or were gone.
    var unserved: Duration {
        Trio.innocent.reduce(.zero) { $0 + (pauses[$1] ?? .zero) + Self.pause(from: servedAt[$1] ?? .zero, to: length) }
    }

    /// Those that did nothing wrong are there, and nothing of theirs is lost. Whether they were of use meanwhile, `unserved` says.
    var survived: Bool { Trio.innocent.allSatisfy { name in begun.contains(name) && !hasEnded(name) && lost[name] == 0 } }

    static let header = ["who", "ended", "orders lost", "stalled, some", "all", "not served"]

    var row: [String] {
        func seconds(_ time: Duration) -> String { Text.fixed(time.inSeconds, decimals: 1) + " s" }
        let endings = ends.map { "\($0.name) after \(seconds($0.at))" + ($0.isKernels && keeper != .kernel ? " by the kernel" : "") }
        let losers = Trio.members.map(\.name).filter { lost[$0] ?? 0 > 0 }.map { "\($0) \(lost[$0]!)" }
        return [
            keeper.rawValue, endings.isEmpty ? "nobody" : endings.joined(separator: ", "), losers.isEmpty ? "none" : losers.joined(separator: ", "),
            seconds(stalls.some), seconds(stalls.full), seconds(unserved),
        ]
    }

    /// Of the whole machine, since it was started.
    struct Stalls {
        /// At least one process waited for memory.
        var some = Duration.zero
        /// All that could have run did.
        var full = Duration.zero

        static var now: Stalls {
            let lines = (ControlFile.text("/proc/pressure/memory") ?? "").split(separator: "\n")
            func total(_ kind: String) -> Duration {
                let line = lines.first { $0.hasPrefix(kind) }
                return .microseconds(line?.split(separator: " ").last.flatMap { Int($0.dropFirst("total=".count)) } ?? 0)
            }
            return Stalls(some: total("some"), full: total("full"))
        }

        static func - (later: Stalls, earlier: Stalls) -> Stalls { Stalls(some: later.some - earlier.some, full: later.full - earlier.full) }
    }
}
