import Plimsoll

/// The format in which an item of preserved state passes bytes to a store.
enum PreservedState {
    private static let magic: [UInt8] = Array("PSV1".utf8)

    /// Returns the bytes with a header that holds the program's version.
    static func wrap(_ bytes: [UInt8], version: Int) -> [UInt8] {
        var wrapped: [UInt8] = []
        wrapped.reserveCapacity(8 + bytes.count)
        wrapped += magic
        append(UInt32(clamping: version), to: &wrapped)
        wrapped += bytes
        return wrapped
    }

    /// Returns the bytes and the version; `nil` for bytes that `wrap` has not made.
    static func unwrap(_ wrapped: [UInt8]) -> (bytes: [UInt8], version: Int)? {
        guard wrapped.count >= 8, wrapped.starts(with: magic) else { return nil }
        return (Array(wrapped[8...]), Int(number(wrapped, 4)))
    }

    /// Joins consecutive changes into one, which is stored as a whole or not at all.
    static func join(_ deltas: [[UInt8]]) -> [UInt8] {
        var joined: [UInt8] = []
        joined.reserveCapacity(deltas.reduce(0) { $0 + 4 + $1.count })
        for delta in deltas {
            append(UInt32(delta.count), to: &joined)
            joined += delta
        }
        return joined
    }

    /// Returns the changes; `nil` for bytes that `join` has not made.
    static func split(_ joined: [UInt8]) -> [[UInt8]]? {
        var deltas: [[UInt8]] = []
        var offset = 0
        while offset < joined.count {
            guard joined.count - offset >= 4 else { return nil }
            let length = Int(number(joined, offset))
            offset += 4
            guard length <= joined.count - offset else { return nil }
            deltas.append(Array(joined[offset..<offset + length]))
            offset += length
        }
        return deltas
    }

    /// Returns a hash that distinguishes states within this process. The hash has 64 bits and a new key in each
    /// process, so no collisions occur in practice.
    static func hash(_ bytes: [UInt8]) -> Int {
        var hasher = Hasher()
        bytes.withUnsafeBytes { hasher.combine(bytes: $0) }
        return hasher.finalize()
    }

    private static func append(_ number: UInt32, to bytes: inout [UInt8]) {
        withUnsafeBytes(of: number.littleEndian) { bytes.append(contentsOf: $0) }
    }

    private static func number(_ bytes: [UInt8], _ offset: Int) -> UInt32 {
        (0..<4).reduce(0) { $0 | UInt32(bytes[offset + $1]) << UInt32(8 * $1) }
    }
}

/// The end of the previous run, as far as recorded (C24).
public enum PreviousRun: String, Sendable, Hashable, CaseIterable {
    /// There was no previous run.
    case none
    /// The run terminated in good order.
    case clean
    /// The run ended without notice after it had come up: killed, crashed, or the machine went down.
    case crashed
    /// The kernel killed the run because memory was short, by the evidence of a black box
    /// (`ResourceManager.keepBlackBox(at:)` of PlimsollLinux). Without one such a run counts as `crashed`.
    case outOfMemory
    /// The run ended without notice before it had come up (T36).
    case failedLaunch
    /// An operator ended the run by hand, and left a mark.
    case killedByOperator
    /// The record cannot be read, or launches are not counted.
    case unknown

    /// Returns this end with the evidence of a black box, which knows a kill for memory from a crash.
    func refined(by evidence: PreviousEnd?) -> PreviousRun {
        switch (self, evidence) {
        case (.crashed, .outOfMemory), (.unknown, .outOfMemory): .outOfMemory
        case (.unknown, .clean): .clean
        case (.unknown, .unknown): .crashed
        default: self
        }
    }
}

/// The result of restoring preserved state at launch (C42).
public struct RestoreOutcome: Sendable, Hashable {
    /// The result for the state of one name.
    package enum Result: Sendable, Hashable {
        /// The state is as last saved.
        case restored
        /// No state was stored.
        case none
        /// The stored state is not used, for this reason, and was set aside.
        case cleanStart(reason: String)
    }

    /// The end of the previous run.
    public var previousRun: PreviousRun
    /// The reason for restoring no state at all; `nil` if each state was restored separately.
    public var cleanStartReason: String?
    /// The result for each name, in the order of registration.
    package var items: [Item]
    /// Other problems, which did not keep the process from launching.
    public var problems: [String]

    /// The result for one name.
    package struct Item: Sendable, Hashable {
        /// The name given to `preserve`.
        package var name: String
        package var result: Result
    }

    /// Names of the states that are as last saved.
    public var restored: [String] { items.filter { $0.result == .restored }.map(\.name) }

    /// Names of the stored states that are not used and were set aside, each with the reason. States of other names
    /// were not stored.
    public var cleanStarts: [String: String] {
        var reasons: [String: String] = [:]
        for item in items { if case .cleanStart(let reason) = item.result { reasons[item.name] = reason } }
        return reasons
    }

    /// Returns the result for `name`; `nil` if no state of that name is preserved.
    package subscript(name: String) -> Result? { items.last { $0.name == name }?.result }
}

/// State that was not saved when required.
package struct PreservationFailure: Error, Sendable, Hashable, CustomStringConvertible {
    /// The name given to `preserve`.
    package var name: String
    /// The reason why the state was not saved, and the state in force instead.
    package var reason: String

    package var description: String { "cannot save the state \"\(name)\": \(reason)" }
}
