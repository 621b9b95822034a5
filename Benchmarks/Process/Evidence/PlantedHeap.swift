// Kinds of objects that only a planted heap has.
class PlantedBase { var number = 1 }
final class PlantedSub: PlantedBase { var more: (Int, Int, Int) = (1, 2, 3) }
final class PlantedPair<First, Second> {
    let first: First, second: Second
    init(_ first: First, _ second: Second) { (self.first, self.second) = (first, second) }
}
struct PlantedOuter<Value> {
    final class Inner {
        let value: Value
        init(_ value: Value) { self.value = value }
    }
    struct Part { var value: Value }
}
enum PlantedChoice { case none, some(Int) }
extension PlantedBase { final class InExtension { var number = 2 } }
protocol PlantedProtocol {}
final class PlantedBuffer: ManagedBuffer<Int, UInt8> {}
final class PlantedOwner {
    let block: UnsafeMutableRawPointer
    init(bytes: Int) {
        block = .allocate(byteCount: bytes, alignment: 16)
        block.initializeMemory(as: UInt8.self, repeating: 1, count: bytes)
    }
    deinit { block.deallocate() }
}
final class PlantedLink { weak var other: PlantedLink? }

/// The name of a type as a census has it.
func censusName<Type>(_ type: Type.Type) -> String { _typeName(type, qualified: true).replacing("Swift.", with: "") }

/// Objects of known kinds and numbers.
struct PlantedHeap {
    var kept: [Any] = []
    var closures: [() -> Int] = []
    /// Number of objects by name.
    var truth: [String: Int] = [:]

    mutating func keep<Object: AnyObject>(_ count: Int, _ make: (Int) -> Object) {
        for number in 0..<count { kept.append(make(number)) }
        truth[censusName(Object.self), default: 0] += count
    }

    mutating func keep(_ count: Int, storage: String, _ make: (Int) -> Any) {
        for number in 0..<count { kept.append(make(number)) }
        truth[storage, default: 0] += count
    }

    /// Twenty kinds; `count` objects of the first, fewer of the others.
    init(_ count: Int) {
        let part = PlantedOuter<UInt16>.Part(value: 1)
        keep(count) { _ in PlantedBase() }
        keep(count / 2) { _ in PlantedSub() }
        keep(count / 2 + 1) { PlantedPair($0, Optional("text")) }
        keep(count / 2 + 2) { PlantedPair([$0: "text"] as [Int: String]?, (UInt8(1), 2.0)) }
        keep(count / 3) { PlantedOuter<UInt16>.Inner(UInt16(truncatingIfNeeded: $0)) }
        keep(count / 3 + 1) { _ in PlantedOuter<any PlantedProtocol.Type>.Inner(PlantedConformance.self) }
        keep(count / 3 + 2) { _ in PlantedPair(part, PlantedChoice.none) }
        keep(count / 4) { _ in PlantedBase.InExtension() }
        keep(count / 4 + 1) { _ in
            unsafeDowncast(PlantedBuffer.create(minimumCapacity: 300) { _ in 1 }, to: PlantedBuffer.self)
        }
        keep(count / 4 + 2) { _ in PlantedOwner(bytes: 2000) }
        keep(count / 5) { _ in PlantedPair<any Error, AnyObject?>(PlantedError.first, nil) }
        keep(count / 5 + 1) { number in PlantedPair<(Int) -> PlantedChoice, Any?>({ .some($0) }, nil) }
        keep(count / 6) { _ in PlantedLink() }
        keep(count / 7, storage: "_ContiguousArrayStorage<\(censusName(PlantedChoice.self))>") {
            [PlantedChoice](repeating: .some($0), count: 40)
        }
        keep(count / 7, storage: "_ContiguousArrayStorage<\(censusName((PlantedChoice, Int).self))>") {
            [(PlantedChoice, Int)](repeating: (.none, $0), count: 7)
        }
        keep(count / 8, storage: "_DictionaryStorage<Int, \(censusName(PlantedChoice.self))>") { number in
            Dictionary(uniqueKeysWithValues: (0..<12).map { ($0 + number, PlantedChoice.some($0)) })
        }
        keep(count / 8 + 1, storage: "_DictionaryStorage<String, \(censusName(PlantedOuter<UInt16>.Part.self))>") {
            number in
            ["a key that is longer than fifteen bytes \(number)": part]
        }
        keep(count / 9, storage: "_SetStorage<\(censusName(PlantedKey.self))>") { number in
            Set((0..<9).map { PlantedKey(number: $0 + number) })
        }
        for number in 0..<count / 10 {
            let base = PlantedKey(number: number), sub = PlantedPair(number, base)
            closures.append { sub.first + base.number }
        }
        truth["closure capturing \(censusName(PlantedPair<Int, PlantedKey>.self)), \(censusName(PlantedKey.self))"] =
            count / 10
        truth[censusName(PlantedPair<Int, PlantedKey>.self)] = count / 10
    }
}

struct PlantedConformance: PlantedProtocol {}
enum PlantedError: Error { case first }
struct PlantedKey: Hashable { var number: Int }
