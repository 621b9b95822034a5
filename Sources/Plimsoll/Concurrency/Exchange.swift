/// Replaces a value and returns the former one, which the caller releases outside the lock.
package func exchange<Value>(_ value: inout Value, _ new: consuming Value) -> Value {
    let former = value
    value = new
    return former
}

extension Array {
    /// Removes the element that is `object` and returns the element; `nil` if there is none.
    package mutating func remove(identicalTo object: AnyObject?) -> Element? {
        firstIndex { ($0 as AnyObject) === object }.map { remove(at: $0) }
    }
}
