import Glibc
import Plimsoll
public import Testing

/// True if a test that cannot run here fails instead of being skipped: `TEST_REQUIRE=1`.
public let requiresEveryTest = getenv("TEST_REQUIRE").map { String(cString: $0) } == "1"

/// A requirement of a test on the machine. On other machines the test is skipped with the reason, or fails where every
/// test is required.
public struct Need: TestTrait, SuiteTrait {
    /// A machine that runs the test in place of this one.
    public enum Substitute: Sendable {
        /// The kernel of `make vm`.
        case virtualMachine
    }

    private struct Unmet: Error, CustomStringConvertible {
        let description: String
    }

    private let isMet: @Sendable () -> Bool
    private let reason: String
    private let substitute: Substitute?

    init(_ reason: String, _ substitute: Substitute?, _ isMet: @escaping @Sendable () -> Bool) {
        self.isMet = isMet
        self.substitute = substitute
        self.reason = substitute == nil ? reason : reason + "; make vm runs it"
    }

    public var isRecursive: Bool { true }

    public func prepare(for test: Test) async throws {
        if requiresEveryTest, substitute == nil, !isMet() { throw Unmet(description: "TEST_REQUIRE=1 requires every test, but \(reason)") }
        let isMet = isMet
        try await ConditionTrait.enabled(Comment(rawValue: reason)) { isMet() }.prepare(for: test)
    }
}

extension Trait where Self == Need {
    /// Runs the test only where `condition` holds.
    /// - Parameters:
    ///   - condition: The required property of the machine.
    ///   - reason: The lack of the machine if `condition` does not hold.
    ///   - substitute: A machine that meets the condition and runs the test as well.
    public static func needs(
        _ condition: @autoclosure @escaping @Sendable () -> Bool, _ reason: String, or substitute: Need.Substitute? = nil
    ) -> Need { Need(reason, substitute, condition) }

    /// Runs the test only where Plimsoll is built for the Linux kernel: volatile memory, barriers of all threads and
    /// memory that is wiped in a forked child. The inert build of other systems has none (`make inert`).
    public static var needsLinux: Need {
        Need("the inert build has no volatile memory and no barriers", nil) { VolatileMemory.isSupported }
    }

    /// Runs the test only where there is no `obstacle`, which is the reason.
    public static func needs(no obstacle: Comment?, or substitute: Need.Substitute? = nil) -> Need {
        let isMet = obstacle == nil
        return Need(obstacle?.rawValue ?? "", substitute) { isMet }
    }
}
