import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollLinux
import PlimsollTesting

/// One service that grows, in a group of its own, until its end.
final class BlackBoxKill {
    /// The cause of the end.
    enum Means: String, CaseIterable {
        /// SIGKILL by the parent.
        case signal
        /// The kernel, at the limit of the group.
        case limit
        /// `abort()`.
        case abort
    }

    /// The result for one service.
    struct Finding {
        var means: Means
        /// True if the record has a reading for each second of the last minute, up to the end.
        var isWhole: Bool
        /// True if the story names the memory that grew.
        var isNamed: Bool
        /// True if the verdict is that memory was the cause.
        var saysOutOfMemory: Bool
        var text: String
    }

    private let means: Means
    private let grower: Grower
    private let file: String
    private let group: LimitedGroup
    private let child: ChildProcess
    private let began = SteadyClock.now
    private let killAfter: Duration?
    private var life = Duration.zero

    init(_ number: Int, seed: UInt64, limit: ByteCount, file: String) throws {
        var random = SeededGenerator(seed: seed &* 1000 &+ UInt64(number))
        means = Means.allCases[number % Means.allCases.count]
        grower = Grower.allCases[number / Means.allCases.count % Grower.allCases.count]
        self.file = file
        // One in ten lives for more than a minute, the others for some seconds.
        let length =
            number % 10 == 9 ? Double.random(in: 62...75, using: &random) : .random(in: 1.5...8, using: &random)
        killAfter = means == .signal ? .seconds(length) : nil
        // The cache takes some of the limit. At the limit, the memory takes as long as the others live.
        let most = means == .limit ? limit : limit * 0.6
        var arguments = [
            "_black-box", "--file", file, "--grower", grower.rawValue, "--most", "\(most.bytes)", "--rate",
            "\(Int(Double(most.bytes) / length))",
        ]
        if means == .abort { arguments += ["--abort-after", "\(length)"] }
        group = try GroupMaker().make("evidence-\(number)", limit: limit)
        do { child = try group.startPart(arguments) } catch {
            group.remove()
            throw error
        }
    }

    /// Returns true if the service has ended. Kills it when its time has come.
    func isOver() -> Bool {
        life = SteadyClock.now - began
        if let killAfter, life >= killAfter { child.signal(SIGKILL) }
        return child.poll() != nil
    }

    func finding() throws -> Finding {
        let ended = Timekeeper.running.wall()
        defer { cleanUp() }
        let expected: ChildProcess.Ending = .signalled(means == .abort ? SIGABRT : SIGKILL)
        guard child.ending == expected, means != .limit || group.kills > 0 else {
            throw Failure.failed(
                "a service that \(means.rawValue) should end ended otherwise: \(String(describing: child.ending))")
        }
        let (contents, isLiving) = try BoxFile.read(file)
        let story = BoxStory(contents), samples = contents.samples
        let first = max(contents.writer.started, ended - .seconds(60))
        // A reading each second, at the slowest pace; the machine may be busy.
        let walls = [first] + samples.map(\.wall).filter { $0 >= first } + [ended]
        let gap = zip(walls, walls.dropFirst()).map { $1 - $0 }.max() ?? .max
        let isWhole = !isLiving && gap < .seconds(2) && contents.end == nil
        let rise = story.rise?.bytes ?? 0, named = story.growths.first
        let isNamed =
            switch grower {
            case .thumbnails: named?.name == "thumbnails" && (named?.bytes ?? 0) > story.unregistered
            case .unregistered: story.unregistered > rise / 2
            }
        return Finding(
            means: means, isWhole: isWhole, isNamed: isNamed, saysOutOfMemory: story.verdict.kind == .outOfMemory,
            text:
                "\(means.rawValue), \(grower.rawValue), \(life.brief): longest gap \(gap.brief); \(story.verdict.sentence); rose by"
                + " \(ByteCount(rise)), \(named.map { "\($0.name) by \(ByteCount($0.bytes)), " } ?? "")elsewhere \(ByteCount(story.unregistered))"
        )
    }

    func cleanUp() {
        child.end(within: .zero)
        if !group.remove() { Output.problem("cannot remove \(group.memory)") }
    }
}
