import Glibc

/// A cache in a separate process, in another language. A line requests each heat, and a line answers.
final class ExternalContender: Contender {
    let name: String
    private let process: ChildProcess

    /// Starts the program and waits until the cache is warm.
    init(_ peer: ExternalPeer, _ arguments: [String]) throws {
        name = peer.name
        process = try ChildProcess(
            "/usr/bin/env", ["env"] + peer.command + arguments, readsOutput: true, endsWithParent: true)
        guard try answer() == "ready" else { throw Failure.failed("\(name) did not start") }
    }

    deinit { process.end(within: .seconds(1)) }

    func run(threads: Int, for length: Duration) throws -> Heat {
        process.send("\(threads) \(Int(length.milliseconds))")
        let numbers = try answer().split(separator: " ").compactMap { Double($0) }
        guard numbers.count == 5 * threads else {
            throw Failure.failed("\(name) answered \(numbers.count) numbers for \(threads) threads")
        }
        return Heat(
            laps: (0..<threads).map { thread in
                let lap = numbers[(5 * thread)...]
                let times = ThreadTimes(
                    processor: lap[lap.startIndex + 2], wall: lap[lap.startIndex + 3], waited: lap[lap.startIndex + 4])
                return Lap(operations: lap[lap.startIndex], hits: lap[lap.startIndex + 1], times: times)
            })
    }

    private func answer() throws -> String {
        guard let output = process.output else { throw Failure.failed("\(name) has no output") }
        while true {
            if let line = output.lines().first { return line }
            guard !output.isAtEnd else {
                throw Failure.failed("\(name) ended with status \(process.waitForEnd().status)")
            }
            var wanted = pollfd(fd: output.descriptor, events: Int16(POLLIN), revents: 0)
            poll(&wanted, 1, -1)
        }
    }
}

/// A program that can race, with its command and abilities.
struct ExternalPeer {
    let name: String
    let command: [String]
    let works: Set<Work>
    let kinds: Set<KeyKind>
}

/// The operations of a workload, as named to the other programs.
enum Work: String { case look, lookOrInsert = "look-or-insert", lookAndWrite = "look-and-write" }

/// The kind of keys, as named to the other programs.
enum KeyKind: String { case number, text }
