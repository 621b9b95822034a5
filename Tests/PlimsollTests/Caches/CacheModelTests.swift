import TestSupport
import Testing

@testable import Plimsoll

/// Every operation in any order, compared with a dictionary.
@Suite struct CacheModelTests {
    /// A value that is an object.
    final class Object: Sendable {
        let number: Int
        init(_ number: Int) { self.number = number }
    }

    private func run<Key, Value>(_ model: CacheModel<Key, Value>, _ steps: Int) {
        for _ in 0..<steps where !model.isBroken { model.step() }
        model.compare()
    }

    @Test func `the cache matches the model for numbers, with a listener`() {
        for seed in seeds(0..<12) {
            let model = CacheModel<Int, Int>(
                seed: seed, keys: seed % 2 == 0 ? 60 : 3000, limit: 20_000, shards: [1, 4, 64][Int(seed % 3)], hasListener: true,
                key: { $0 }, value: { $0 }, number: { $0 })
            run(model, 2500)
        }
    }

    @Test func `the cache matches the model for numbers, read without the lock and without a listener`() {
        for seed in seeds(0..<12) {
            let model = CacheModel<Int, Int>(
                seed: seed, keys: seed % 2 == 0 ? 60 : 3000, limit: 20_000, shards: [1, 4, 64][Int(seed % 3)], hasListener: false,
                key: { $0 }, value: { $0 }, number: { $0 })
            run(model, 2500)
        }
    }

    @Test func `the cache matches the model for text and objects`() {
        for seed in seeds(0..<12) {
            let model = CacheModel<String, Object>(
                seed: seed, keys: seed % 2 == 0 ? 60 : 3000, limit: 20_000, shards: [1, 4, 64][Int(seed % 3)], hasListener: seed % 4 < 2,
                key: { "a key too long to be small \($0)" }, value: { Object($0) }, number: { $0.number })
            run(model, 2500)
        }
    }

    @Test func `the cache matches the model for values that expire, and that idle`() {
        for seed in seeds(0..<8) {
            let model = CacheModel<Int, String>(
                seed: seed, keys: 200, limit: 20_000, shards: 4, hasListener: seed % 4 < 2,
                lifetime: (seed % 3 == 0 ? nil : .seconds(3), seed % 2 == 0 ? .seconds(1) : nil), key: { $0 }, value: { "\($0)" },
                number: { Int($0) ?? -1 })
            run(model, 2500)
        }
    }

    @Test func `a shard splits while entries have tags, times and costs`() {
        for seed in seeds(0..<4) {
            let model = CacheModel<Int32, Object>(
                seed: seed, keys: 20_000, limit: nil, shards: 256, hasListener: true, key: { Int32($0) }, value: { Object($0) }, number: { $0.number }
            )
            for _ in 0..<6000 where !model.isBroken { model.grow() }
            run(model, 300)
            if model.cache.directory.shards < 8 { Issue.record("seed \(seed): hardly any split") }
        }
    }
}

extension CacheDirectory {
    /// The number of shards.
    var shards: Int {
        var count = 0
        forEach { _ in
            count += 1
            return true
        }
        return count
    }
}

extension CacheModel {
    /// Inserts an entry without the comparison of all contents, which takes long.
    func grow() { insert(isChecked: false) }
}
