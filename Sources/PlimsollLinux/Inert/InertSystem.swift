#if !canImport(Glibc) || PLIMSOLL_INERT
public import Plimsoll
public import PlimsollLifecycle

// The product away from Linux and glibc: the same names, so that a program compiles, and no effect. Every refusal gives
// the reason. `make inert` compiles this file on Linux.

enum InertSystem {
    static let reason = "this system is not Linux with glibc; run the service there, or in a container"
    static let signal = Capabilities.Signal("usage", isLive: false, "cannot read memory pressure because \(reason)")
}

extension Timekeeper {
    /// The time of this process: there is no clock of the host here that also counts sleep.
    package static var machine: Timekeeper { .running }
}

/// A source that reads nothing, because this system is not Linux with glibc. `capabilities` gives that reason. A
/// manager with this source runs, raises no level and releases nothing by itself.
public final class LinuxPressureSource: PressureSource, EnvironmentProvider {
    private let parker = Parker()

    /// Creates a source; the parameters have no effect here.
    public init(thresholds: PressureThresholds = .standard, setsHigh: Bool = false, usesTriggers: Bool = true) {}

    /// No environment is watched here.
    package var environment: (any EnvironmentSource)? { nil }
    /// One dead signal, with the reason.
    public var capabilities: Capabilities { Capabilities(signals: [InertSystem.signal]) }
    /// Throws the reason.
    public func read(at: Duration) throws(PressureSourceError) -> PressureReading {
        throw PressureSourceError(InertSystem.signal.detail)
    }
    /// Blocks until `wake`, or until `limit` has passed.
    public func wait(atMost limit: Duration) { parker.park(atMost: limit) }
    /// Ends a `wait`, the present one or else the next.
    public func wake() { parker.unpark() }
    /// Returns zeros.
    public func footprint() -> Footprint { Footprint() }
    /// False: no event ends a wait.
    public var rings: Bool { false }
}

extension ResourceManager {
    /// Throws the reason: there is no black box on this system.
    @discardableResult
    public func keepBlackBox(at path: String) throws -> String? { throw FileStateStoreError("keep", path) }
}

/// A store that keeps nothing, because this system is not Linux with glibc. Each write throws.
public final class FileStateStore: StateStore {
    /// The directory, which stays untouched.
    public let path: String

    /// Creates a store without effect.
    public init(directory: String, onReport: (@Sendable (String) -> Void)? = nil) { path = directory }

    /// Throws the reason.
    public func write(_ name: String, _ bytes: [UInt8]) throws { throw FileStateStoreError("write", path) }
    /// Returns `nil`: there is never any state.
    public func read(_ name: String) throws -> [UInt8]? { nil }
    /// Does nothing.
    public func remove(_ name: String) throws {}
    /// Does nothing.
    public func relinquish() {}
    /// Throws the reason.
    public static func markKilledByOperator(directory: String) throws { throw FileStateStoreError("mark", directory) }
}

/// The reason why a state was not saved.
public struct FileStateStoreError: Error, Sendable, Hashable, CustomStringConvertible {
    /// False here: the disk is not full.
    public var isFull: Bool { false }
    /// False here: no store is held.
    public var isHeldByAnother: Bool { false }
    /// The operation that failed.
    public var call: String
    /// The directory or file.
    public var path: String
    /// The errno of the failed call; 0 as there was no call.
    public var number: Int32 { 0 }
    /// The effect on the state.
    public var consequence: String { "the state was not saved" }
    /// The request, the reason and the remedy.
    public var description: String { "cannot \(call) state in \(path) because \(InertSystem.reason)" }

    init(_ call: String, _ path: String) { (self.call, self.path) = (call, path) }
}

/// The service manager of systemd, which is never there on this system.
package struct ServiceManager: Sendable {
    package let watchdogInterval: Duration? = nil

    package init?() throws(ServiceManagerError) { return nil }

    package func notify(_ lines: String..., descriptors: [Int32] = []) throws(ServiceManagerError) {}
}

package struct ServiceManagerError: Error, Sendable, Hashable, CustomStringConvertible {
    package var description: String { "cannot notify a service manager because \(InertSystem.reason)" }
    package var isBusy: Bool { false }
}

/// A store at the service manager of systemd, which is never there on this system.
public final class ServiceManagerStateStore: StateStore {
    public init?() throws { return nil }

    /// Throws the reason.
    public func write(_ name: String, _ bytes: [UInt8]) throws { throw ServiceManagerError() }
    public func read(_ name: String) throws -> [UInt8]? { nil }
    /// Does nothing.
    public func remove(_ name: String) throws {}
}

/// A connection to a supervisor, which is never there on this system.
public final class SupervisorLink: Sendable {
    /// The variable by which a supervisor names its socket.
    public static let variable = "PLIMSOLL_SUPERVISOR"

    /// Throws the reason.
    public init(_ manager: ResourceManager, onEnding: (@Sendable (_ grace: Duration) -> Void)? = nil) throws {
        throw SupervisorLinkError()
    }

    /// Does nothing.
    public func close() {}
    /// Returns false.
    public func setKeepAlive(every interval: Duration?) async -> Bool { false }
}

/// The reason why no supervisor is connected.
public struct SupervisorLinkError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The request, the reason and the remedy.
    public var description: String { "cannot connect to a supervisor because \(InertSystem.reason)" }
    /// True: no supervisor has started this process.
    public var isAlone: Bool { true }
}
#endif
