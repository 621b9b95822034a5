import Glibc
import Plimsoll
import Testing

@testable import PlimsollLinux

/// For each operation on a state, every system call fails, and the power fails at every system call.
@Suite struct FileStateStoreFaultTests {
    static let directory = "/state"
    static let old = [UInt8](repeating: 0x6f, count: 9000), new = [UInt8](repeating: 0x6e, count: 12_000)
    static let delta = [UInt8](repeating: 0x64, count: 5000)

    /// An operation on a state, with the states before and after.
    enum Operation: CaseIterable {
        case write, append, grow, remove, setAside, firstWrite

        var before: StoredState {
            switch self {
            case .firstWrite: .absent
            case .grow: .state(base: old, deltas: [[UInt8](repeating: 0x63, count: 64_000)])
            default: .state(base: old, deltas: [[1, 2, 3]])
            }
        }

        var after: StoredState {
            switch self {
            case .write, .grow, .firstWrite: .state(base: new, deltas: [])
            case .append: .state(base: old, deltas: [[1, 2, 3], delta])
            case .remove, .setAside: .absent
            }
        }

        /// Writes the state before the operation to a disk.
        func prepare(_ kernel: DiskKernel) throws {
            guard case .state(let base, let deltas) = before else { return }
            let store = FileStateStoreFaultTests.store(kernel)
            try store.write("cart", base)
            for delta in deltas { #expect(try store.append(delta, to: "cart")) }
        }

        func run(_ store: FileStateStore) throws {
            switch self {
            case .write, .firstWrite: try store.write("cart", new)
            case .append: try #require(try store.append(delta, to: "cart"))
            case .grow: if try !store.append(delta, to: "cart") { try store.write("cart", new) }
            case .remove: try store.remove("cart")
            case .setAside: try store.setAside("cart", reason: "a test")
            }
        }
    }

    static func store(_ kernel: DiskKernel) -> FileStateStore { FileStateStore(StateDirectory(directory, kernel: kernel)) }

    @Test(arguments: Operation.allCases, DiskKernel.Persistence.allCases)
    func `T35 any failing call leaves the old or the new state, and the error names the call and the file`(
        operation: Operation, persistence: DiskKernel.Persistence
    ) throws {
        for (failure, isShort) in [(EIO, false), (ENOSPC, true)] {
            var failed = 0
            for nth in 1...200 {
                let kernel = DiskKernel(directory: Self.directory)
                try operation.prepare(kernel)
                let store = Self.store(kernel)
                #expect(try store.load("cart") == operation.before)
                kernel.fail(nth, persistence, failure, isShort: isShort)
                let first = kernel.calls.count
                var error: FileStateStoreError?
                do { try operation.run(store) } catch let thrown as FileStateStoreError { error = thrown }
                let made = kernel.calls[first...].joined(separator: ", ")
                guard kernel.faultWasReached else {
                    #expect(nth > 3 && error == nil, "\(made)")
                    #expect(try Self.store(kernel.reopened()).load("cart") == operation.after)
                    failed = nth - 1
                    break
                }
                let comment: Comment = "call \(nth) of \(made)"
                if let error {
                    #expect(error.number == failure && kernel.calls.contains("\(error.call) \(error.path)"), comment)
                    #expect(error.reason == (failure == EIO ? .inputOutput : .noSpace), comment)
                    #expect(error.description.contains(error.call) && error.description.contains(error.path), comment)
                }
                kernel.fail(.max, .once, 0)
                let found = try Self.store(kernel.reopened()).load("cart")
                #expect(found == operation.before || found == operation.after, comment)
                if error == nil { #expect(found == operation.after, comment) }
                if let error, error.consequence.contains("untouched") { #expect(found == operation.before, comment) }
                // The store stays usable: a whole write restores everything.
                try store.write("cart", [7])
                #expect(try store.load("cart") == .state(base: [7], deltas: []), comment)
                #expect(try Self.store(kernel.reopened()).load("cart") == .state(base: [7], deltas: []), comment)
            }
            #expect(failed > 0, "still failing after 200 calls")
        }
    }

    @Test(arguments: Operation.allCases, DiskKernel.PowerLoss.allCases)
    func `T35 C43 a power loss at any point leaves the old or the new state, and a saved state is the new state`(
        operation: Operation, loss: DiskKernel.PowerLoss
    ) throws {
        var isDone = false, seenOld = false
        for nth in 1...200 where !isDone {
            let kernel = DiskKernel(directory: Self.directory)
            try operation.prepare(kernel)
            let store = Self.store(kernel)
            _ = try store.load("cart")
            kernel.fail(nth, .forever, EIO)
            // The process ends at this point, so no caller gets the errors.
            try? operation.run(store)
            isDone = !kernel.faultWasReached
            let disk = DiskKernel(kernel, after: loss)
            let found = try Self.store(disk).load("cart")
            #expect(found == operation.after || (!isDone && found == operation.before), "power lost at \(kernel.calls.last ?? ""), \(loss)")
            if found == operation.before { seenOld = true }
            if operation == .setAside {
                let places = disk.names.filter { $0.hasPrefix(Self.directory + "/cart.state") }
                #expect(places.count == 1, "\(places)")
            }
        }
        #expect(isDone && seenOld)
    }

    @Test func `T35 a failed append without an undo is never doubled`() throws {
        let kernel = DiskKernel(directory: Self.directory)
        let store = Self.store(kernel)
        try store.write("cart", Self.old)
        // open and pwrite succeed; fsync and the truncation after fsync fail.
        kernel.fail(3, .forever, EIO)
        #expect { try store.append([1], to: "cart") } throws: { ($0 as? FileStateStoreError)?.call == "fsync" }
        kernel.fail(.max, .once, 0)
        #expect(try !store.append([1], to: "cart"))
        #expect(try Self.store(kernel.reopened()).load("cart") == .state(base: Self.old, deltas: [[1]]))
        try store.write("cart", Self.new)
        #expect(try store.append([2], to: "cart"))
        #expect(try Self.store(kernel.reopened()).load("cart") == .state(base: Self.new, deltas: [[2]]))
    }

    @Test(arguments: [
        (ENOSPC, FileStateStoreError.Reason.noSpace, "free some space"), (EROFS, .readOnly, "can be written to"),
        (EACCES, .noPermission, "belong to the user"), (EIO, .inputOutput, "Input/output error"), (EMFILE, .other, "Too many open files"),
    ])
    func `T35 a full, read-only, forbidden or failing directory gives the reason, and leaves the old state`(
        number: Int32, reason: FileStateStoreError.Reason, text: String
    ) throws {
        let kernel = DiskKernel(directory: Self.directory)
        let store = Self.store(kernel)
        try store.write("cart", Self.old)
        kernel.fail(1, .forever, number)
        do {
            try store.write("cart", Self.new)
            Issue.record("the write succeeded")
        } catch let error as FileStateStoreError {
            #expect(error.reason == reason && error.call == "open" && error.path == "/state/cart.state-new")
            #expect(error.description.contains(text) && error.description.contains("the state saved before is untouched"), "\(error)")
        }
        kernel.fail(.max, .once, 0)
        #expect(try store.read("cart") == Self.old)
    }

    @Test func `C24 an operator's mark of another user counts although it cannot be opened, and can be removed`() throws {
        let kernel = DiskKernel(directory: Self.directory), store = Self.store(kernel)
        let mark = Self.directory + "/killed-by-operator"
        kernel.put([], at: mark)
        kernel.edit { $0.forbidden = [mark] }
        #expect(try store.isMarkedKilledByOperator())
        kernel.fail(1, .once, EIO)
        #expect { try store.isMarkedKilledByOperator() } throws: { ($0 as? FileStateStoreError)?.reason == .inputOutput }
        try store.clearKilledByOperatorMark()
        #expect(try !store.isMarkedKilledByOperator())
    }

    @Test func `a read-only state is read without the lock`() throws {
        let kernel = DiskKernel(directory: Self.directory)
        try Self.store(kernel).write("cart", Self.old)
        let store = Self.store(kernel)
        kernel.fail(1, .once, EROFS)
        #expect(try store.read("cart") == Self.old)
    }

    @Test func `missing directories are created, and reach the disk before any content`() throws {
        let kernel = DiskKernel(directory: "/var")
        let store = FileStateStore(StateDirectory("/var/lib/shop/state", kernel: kernel))
        try store.write("cart", Self.new)
        #expect(try store.read("cart") == Self.new)
        let calls = kernel.calls
        for directory in ["/var", "/var/lib", "/var/lib/shop"] {
            let made = try #require(calls.lastIndex { $0.hasPrefix("mkdir \(directory)/") })
            let synchronized = try #require(calls.firstIndex(of: "fsync \(directory)"))
            #expect(synchronized > made)
        }
    }
}

extension DiskKernel {
    /// Returns the same disk, for a later process.
    func reopened() -> DiskKernel { DiskKernel(self, after: .everything) }
}
