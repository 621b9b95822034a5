import ArgumentParser
import Foundation
import Glibc
import Plimsoll

/// Measures the resident memory of `entries` entries, in a process that has done nothing else.
struct FootprintCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "_footprint", shouldDisplay: false)

    enum Subject: String, ExpressibleByArgument, CaseIterable {
        case purgeableCache, dictionary, indexLinkedLRU, nodeLRU, nsCache

        var title: String {
            switch self {
            case .purgeableCache: ourName
            case .dictionary: "Dictionary"
            case .indexLinkedLRU: "LRU, linked by index"
            case .nodeLRU: "LRU, class nodes"
            case .nsCache: "NSCache"
            }
        }
    }

    @Option var subject: Subject
    @Option var entries: Int

    func run() throws {
        try reportingFailure {
            let before = try Self.residentBytes()
            let held: Any
            // Twice as many entries as fit: data that a cache keeps about evicted entries is part of the footprint.
            switch subject {
            case .purgeableCache: held = filled(PlimsollStore<UInt64, UInt64>(capacity: entries))
            case .indexLinkedLRU: held = filled(IndexLinkedLRU<UInt64, UInt64>(capacity: entries))
            case .nodeLRU: held = filled(NodeLRU<UInt64, UInt64>(capacity: entries))
            case .dictionary:
                var values: [UInt64: UInt64] = [:]
                for number in 0..<entries { values[Keys.key(number)] = UInt64(number) }
                held = values
            case .nsCache:
                // NSCache's keys are objects and count. One value serves all entries.
                let cache = NSCache<NSNumber, NSNumber>(), value = NSNumber(value: 1)
                cache.countLimit = entries
                for number in 0..<entries { cache.setObject(value, forKey: NSNumber(value: number)) }
                held = cache
            }
            let bytes = try Self.residentBytes() - before
            withExtendedLifetime(held) { Output.line("\(Double(bytes) / Double(entries))") }
        }
    }

    private func filled<Store: KeyedStore>(_ store: Store) -> Store where Store.Key == UInt64, Store.Value == UInt64 {
        for number in 0..<2 * entries { store.insert(UInt64(number), forKey: Keys.key(number)) }
        return store
    }

    /// Returns the resident bytes of this process: the second number of `/proc/self/statm`, in pages.
    private static func residentBytes() throws -> Int {
        let text = try String(contentsOfFile: "/proc/self/statm", encoding: .utf8)
        guard let pages = text.split(separator: " ").dropFirst().first.flatMap({ Int($0) }) else {
            throw Failure.failed("/proc/self/statm: \(text)")
        }
        return pages * Int(sysconf(Int32(_SC_PAGESIZE)))
    }

    /// Returns the bytes of an entry, measured by a new process of this program.
    static func measure(_ subject: Subject, entries: Int) throws -> Double {
        try OwnPart.number(["_footprint", "--subject", subject.rawValue, "--entries", "\(entries)"])
    }
}

/// Counts the threads that a used cache has started, in a process that has done nothing else.
struct IdleThreadsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "_idle-threads", shouldDisplay: false)

    func run() throws {
        try reportingFailure {
            let before = try Self.threads()
            let store = PlimsollStore<UInt64, UInt64>(capacity: 1000)
            for number in 0..<10_000 { store.insert(UInt64(number), forKey: Keys.key(number)) }
            store.cache.removeAll()
            SteadyClock.sleep(.milliseconds(200))
            let started = try Self.threads() - before
            withExtendedLifetime(store) { Output.line("\(started)") }
        }
    }

    private static func threads() throws -> Int {
        try FileManager.default.contentsOfDirectory(atPath: "/proc/self/task").count
    }
}

/// Runs of this program for parts that need a separate process.
enum OwnPart {
    /// Returns the first number that the part prints.
    static func number(_ arguments: [String]) throws -> Double { try numbers(arguments)[0] }

    /// Returns the numbers of the line that the part prints.
    static func numbers(_ arguments: [String]) throws -> [Double] {
        let child = try ChildProcess(ChildProcess.itself, ["cache-bench"] + arguments, readsOutput: true)
        let ending = child.waitForEnd(),
            numbers = child.output?.lines().first?.split(separator: " ").compactMap { Double($0) } ?? []
        guard ending == .exited(0), !numbers.isEmpty else {
            throw Failure.failed("\(arguments.joined(separator: " ")) ended with status \(ending.status)")
        }
        return numbers
    }
}
