import Foundation
import Plimsoll
import PlimsollDemos

/// Caches of one process, the requests for each, and the memory that they share.
///
/// A mix file has a line for each part; `#` begins a comment:
///
///     cache NAME TRACE LOAD_MICROSECONDS [RATE]    RATE: requests beside those of the others; by default all traces
///                                                  end together
///     budget 64M | 20%                             percent: of the bytes of all keys
///     shift PERCENT NAME OTHER                     after that part of the run, the two caches swap their traces
struct Mix {
    struct Cache {
        var name: String
        var trace: String
        var loadMicroseconds: Double
        var rate: Double?
    }

    enum Budget: Equatable {
        case bytes(Int)
        case part(Double)
    }

    struct Shift: Equatable {
        /// Part of the run after which the caches swap.
        var at: Double
        var first: String
        var second: String
    }

    var name: String
    var caches: [Cache]
    var budget: Budget
    var shifts: [Shift] = []

    init(_ name: String, _ caches: [Cache], budget: Budget, shifts: [Shift] = []) {
        (self.name, self.caches, self.budget, self.shifts) = (name, caches, budget, shifts)
    }

    init(file: String) throws {
        guard let bytes = FileManager.default.contents(atPath: file) else {
            throw Failure.failed("cannot read \(printable(file))")
        }
        name = String(file.split(separator: "/").last ?? "mix")
        (caches, budget) = ([], .part(0.1))
        for (number, text) in String(decoding: bytes, as: UTF8.self).split(
            separator: "\n", omittingEmptySubsequences: false
        )
        .enumerated() {
            let words = text.prefix { $0 != "#" }.split(whereSeparator: \.isWhitespace).map(String.init)
            guard let kind = words.first else { continue }
            func fail(_ expected: String) -> Failure {
                .failed(
                    "\(printable(file)), line \(number + 1): expected `\(expected)`, found `\(printable(String(text)))`"
                )
            }
            switch (kind, words.count) {
            case ("cache", 4), ("cache", 5):
                let rate = words.count > 4 ? Double(words[4]) : 1
                guard let load = Double(words[3]), load >= 0, load.isFinite, let rate, rate > 0, rate.isFinite else {
                    throw fail("cache NAME TRACE LOAD_MICROSECONDS [RATE]")
                }
                caches.append(
                    Cache(name: words[1], trace: words[2], loadMicroseconds: load, rate: words.count > 4 ? rate : nil))
            case ("budget", 2):
                if words[1].hasSuffix("%"), let part = Double(words[1].dropLast()), part > 0, part <= 100 {
                    budget = .part(part / 100)
                } else if let bytes = ByteCount(words[1]), bytes > .zero {
                    budget = .bytes(bytes.bytes)
                } else {
                    throw fail("budget 64M | 20%")
                }
            case ("shift", 4):
                guard let part = Double(words[1]), (0...100).contains(part) else {
                    throw fail("shift PERCENT NAME OTHER")
                }
                shifts.append(Shift(at: part / 100, first: words[2], second: words[3]))
            default: throw fail("cache …, budget … or shift …")
            }
        }
        guard caches.count > 1 else { throw Failure.failed("\(printable(file)) names fewer than two caches") }
        for name in shifts.flatMap({ [$0.first, $0.second] }) where !caches.contains(where: { $0.name == name }) {
            throw Failure.failed("\(printable(file)): a shift names \(printable(name)), which is no cache")
        }
    }
}
