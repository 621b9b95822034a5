import CSystemCallKiller
import Foundation
import Plimsoll
import TestSupport
import Testing

@testable import PlimsollLinux

/// A real process on the real file system, killed at each of its system calls.
@Suite(.timeLimit(.minutes(5))) struct FileStateStoreKillTests {
    static let program = builtProgram("plimsoll-bench")

    /// The reason why no child process can be traced; `nil` if tracing works.
    static let obstacle: Comment? = {
        guard access(program, X_OK) == 0 else { return "\(program) is not there" }
        let result = run("/bin/true", ["true"], 1).call
        return result < -1 ? "a child cannot be traced here: \(String(cString: strerror(Int32(-1000 - result))))" : nil
    }()

    static func run(_ path: String, _ arguments: [String], _ nth: Int) -> (call: Int, status: Int32) {
        var argv: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
        defer { for argument in argv { free(argument) } }
        var status: Int32 = 0
        let call = kill_at_system_call(path, &argv, nth, &status)
        return (call, status)
    }

    static let old = [UInt8](repeating: 0x6f, count: 70_000)
    static func new(_ count: Int) -> [UInt8] { [UInt8](repeating: 0x6e, count: count) }

    /// An operation of a child on a state, with the states before and after.
    enum Operation: String, CaseIterable {
        case write, append, grow, remove, clean

        var bytes: Int { self == .append ? 3000 : 70_000 }
        var before: StoredState { .state(base: old, deltas: self == .grow ? [new(60_000)] : []) }
        var after: StoredState {
            switch self {
            case .write, .grow: .state(base: new(bytes), deltas: [])
            case .append: .state(base: old, deltas: [new(bytes)])
            case .remove, .clean: .absent
            }
        }
    }

    @Test(.needs(no: obstacle), arguments: Operation.allCases)
    func `C43 T35 a state whose writer is killed at any system call is the old or the new state`(operation: Operation) throws {
        let directory = TemporaryDirectory()
        let whole = try Self.image(of: operation, in: directory)
        var found: [StoredState: Int] = [:], kills = 0
        for nth in 1...2000 {
            try directory.empty()
            try Data(whole).write(to: URL(fileURLWithPath: directory.path + "/state.state"))
            try Data([1]).write(to: URL(fileURLWithPath: directory.path + "/state.state-aside-1"))
            let (call, status) = Self.run(
                Self.program, ["plimsoll-bench", "_state", "--directory", directory.path, "--bytes", "\(operation.bytes)", operation.rawValue], nth)
            let comment: Comment = "\(operation) killed at system call \(nth), number \(call)"
            let store = FileStateStore(directory: directory.path)
            let state = try store.load("state")
            #expect(state == operation.before || state == operation.after, comment)
            found[state, default: 0] += 1
            // A state that was set aside is whole, too, and no file of an interrupted write is left.
            let names = try FileManager.default.contentsOfDirectory(atPath: directory.path)
            #expect(!names.contains { $0.hasSuffix("-new") }, comment)
            if operation == .clean, state == .absent { #expect(try Array(Data(contentsOf: directory.url("state.state-aside-1"))) == whole, comment) }
            guard call >= 0 else {
                #expect(call == -1 && status == 0 && state == operation.after, comment)
                break
            }
            kills += 1
        }
        // Both cases occurred: a kill before the change took effect, and a kill after.
        #expect(kills > 10 && found[operation.before, default: 0] > 5 && found[operation.after, default: 0] > 1, "\(kills) kills")
    }

    private static func image(of operation: Operation, in directory: TemporaryDirectory) throws -> [UInt8] {
        let store = FileStateStore(directory: directory.path)
        guard case .state(let base, let deltas) = operation.before else { return [] }
        try store.write("state", base)
        for delta in deltas { #expect(try store.append(delta, to: "state")) }
        return try Array(Data(contentsOf: directory.url("state.state")))
    }
}

/// A directory of one test, removed with this object.
final class TemporaryDirectory {
    let path = NSTemporaryDirectory() + "plimsoll-state-\(UUID().uuidString)"

    init() { try? FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true) }
    deinit { try? FileManager.default.removeItem(atPath: path) }

    func url(_ name: String) -> URL { URL(fileURLWithPath: path + "/" + name) }

    func empty() throws {
        for name in try FileManager.default.contentsOfDirectory(atPath: path) { try FileManager.default.removeItem(at: url(name)) }
    }
}
