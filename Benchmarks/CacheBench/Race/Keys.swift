import Foundation
import PlimsollTesting

/// Keys, and the order in which threads request them, the same in every run.
enum Keys {
    /// Requests of each thread before its stream repeats.
    static let streamLength = 1 << 21
    /// The largest number of threads in a race.
    static let threads = 2

    /// Returns the key of a number. Keys of neighbouring numbers are unrelated.
    static func key(_ number: Int) -> UInt64 {
        var random = SeededGenerator(seed: UInt64(number))
        return random.next()
    }

    static func keys(_ count: Int) -> [UInt64] { (0..<count).map(key) }

    /// Returns streams in which each key is as likely as any other.
    static func uniform(_ keys: [UInt64]) -> [[UInt64]] {
        (0..<threads).map { thread in
            var random = SeededGenerator(seed: UInt64(100 + thread))
            return (0..<streamLength).map { _ in keys[Int.random(in: 0..<keys.count, using: &random)] }
        }
    }

    /// Returns streams in which the k-th key has a frequency of about 1 / k^0.99, as in YCSB.
    static func zipf(_ keys: [UInt64]) -> [[UInt64]] {
        let zipf = Zipf(count: keys.count, skew: 0.99)
        return (0..<threads).map { thread in
            var random = SeededGenerator(seed: UInt64(200 + thread))
            return (0..<streamLength).map { _ in keys[zipf.next(using: &random)] }
        }
    }

    /// Returns a typical key of a service: too long to be stored inside a `String`.
    static func text(_ key: UInt64) -> String {
        let digits = String(key, radix: 16)
        return "session:" + String(repeating: "0", count: 16 - digits.count) + digits + ":profile"
    }

    /// Returns the same streams with other objects, one for each key.
    static func translated<Other>(_ streams: [[UInt64]], _ translation: (UInt64) -> Other) -> [[Other]] {
        var others: [UInt64: Other] = [:]
        return streams.map { stream in
            stream.map { key in
                if let other = others[key] { return other }
                let other = translation(key)
                others[key] = other
                return other
            }
        }
    }

    /// Files for programs in other languages, removed with this object.
    final class Files {
        let paths: [String]

        init(_ streams: [[UInt64]]) throws {
            let directory = FileManager.default.temporaryDirectory.appendingPathComponent(
                "cache-bench-\(UUID().uuidString)")
            try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
            let files = streams.indices.map { directory.appendingPathComponent("\($0)") }
            paths = files.map(\.path)
            for (file, stream) in zip(files, streams) { try stream.withUnsafeBytes { Data($0) }.write(to: file) }
        }

        deinit {
            if let first = paths.first {
                try? FileManager.default.removeItem(at: URL(fileURLWithPath: first).deletingLastPathComponent())
            }
        }
    }
}
