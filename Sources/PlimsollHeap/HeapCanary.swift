/// Objects of known types and numbers, which a census must find. Freed ones must not be found.
struct HeapCanary {
    private struct Element {
        var number: Int
        var isEven: Bool
    }

    /// The name shows generic arguments.
    private final class Object<Value> {
        var value: Value
        init(_ value: Value) { self.value = value }
    }

    private final class Holder {
        let objects: [Object<Int32>]
        let elements: [Element]
        let closure: () -> Int32

        init() {
            let freed = (0..<4).map { Object(Int32($0)) }
            objects = (0..<3).map { Object(Int32($0)) }
            elements = (0..<5).map { Element(number: $0, isEven: $0 % 2 == 0) }
            let captured = objects[0]
            closure = { captured.value }
            withExtendedLifetime(freed) {}
        }
    }

    private let holder = Holder()

    /// Returns the first expectation that `census` does not meet; `nil` if all are met.
    func missed(by census: HeapCensus) -> String? {
        withExtendedLifetime(holder) {
            let rows = Dictionary(census.rows.map { ($0.name, $0) }) { first, _ in first }
            let objects = rows["\(Self.prefix).Object<Int32>"]
            if objects?.count != 3 { return "\(objects?.count ?? 0) of 3 objects" }
            let array = rows["_ContiguousArrayStorage<\(Self.prefix).Element>"]
            let used = holder.elements.count * MemoryLayout<Element>.stride
            guard array?.count == 1, array?.usedBytes == used else {
                return "an array of \(array?.usedBytes ?? 0) instead of \(used) bytes"
            }
            return nil
        }
    }

    private static let prefix = String(reflecting: HeapCanary.self)

    /// True if the row counts the canary's objects alone.
    static func isOwn(_ row: HeapCensus.Row) -> Bool { row.name.contains(prefix) }
}
