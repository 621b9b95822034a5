import Foundation
import Plimsoll
import PlimsollTesting
import Synchronization
import Testing

@testable import PlimsollLinux

/// State in real files.
@Suite(.serialized, .timeLimit(.minutes(5))) struct FileStateStoreTests {
    let directory = TemporaryDirectory()
    let reports = Reports()

    final class Reports: Sendable {
        private let reports = Mutex<[StateStoreReport]>([])
        func add(_ report: StateStoreReport) { reports.withLock { $0.append(report) } }
        var all: [StateStoreReport] { reports.withLock { $0 } }
    }

    private func store() -> FileStateStore { FileStateStore(StateDirectory.shared(directory.path), report: reports.add) }
    private func bytes(_ name: String) throws -> [UInt8] { try Array(Data(contentsOf: directory.url(name))) }
    private func put(_ bytes: [UInt8], _ name: String) throws { try Data(bytes).write(to: directory.url(name)) }
    private func names() throws -> [String] { try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted() }

    @Test func `a later store reads the written state, and a removed state is gone`() throws {
        do {
            let store = store()
            #expect(try store.read("cart") == nil && store.load("cart") == .absent)
            try store.write("cart", [1, 2, 3])
            try store.write("empty", [])
            #expect(try store.append([4], to: "cart") && store.append([], to: "cart"))
        }
        let store = store()
        #expect(try store.load("cart") == .state(base: [1, 2, 3], deltas: [[4], []]))
        #expect(try store.read("cart") == [1, 2, 3] && store.read("empty") == [])
        #expect(try store.append([5], to: "cart"))
        #expect(try store.load("cart") == .state(base: [1, 2, 3], deltas: [[4], [], [5]]))
        try store.write("cart", [6])
        #expect(try store.load("cart") == .state(base: [6], deltas: []))
        try store.remove("cart")
        try store.remove("cart")
        #expect(try store.load("cart") == .absent && names() == ["empty.state", "lock"] && reports.all.isEmpty)
    }

    @Test func `nothing is appended to an absent or unknown state`() throws {
        let store = store()
        #expect(try !store.append([1], to: "cart"))
        try put([1, 2, 3], "cart.state")
        #expect(try !store.append([1], to: "cart"))
        #expect(try bytes("cart.state") == [1, 2, 3])
    }

    @Test func `changes that would outgrow the base state are refused`() throws {
        let store = store()
        try store.write("small", [1])
        try store.write("large", [UInt8](repeating: 1, count: 200_000))
        let change = [UInt8](repeating: 2, count: 1000)
        var appended = (small: 0, large: 0)
        while try store.append(change, to: "small") { appended.small += 1 }
        while try store.append(change, to: "large") { appended.large += 1 }
        // The room for changes is 64 KiB for a small state, and as much as the base for a large one.
        #expect(appended.small == 64 && appended.large == 195)
        try store.write("small", [2])
        #expect(try store.append(change, to: "small"))
    }

    @Test func `only the owner may access the files and the directory`() throws {
        let store = FileStateStore(directory: directory.path + "/a/b/")
        #expect(store.path == directory.path + "/a/b")
        try store.write("cart", [1])
        func mode(_ name: String) throws -> Int? {
            try FileManager.default.attributesOfItem(atPath: directory.path + "/" + name)[.posixPermissions] as? Int
        }
        #expect(try mode("a") == 0o700 && mode("a/b") == 0o700)
        #expect(try mode("a/b/cart.state") == 0o600 && mode("a/b/lock") == 0o600)
    }

    @Test func `no name leaves the directory, and no two names share a file`() throws {
        let store = store()
        let names = ["../up", "..", ".", "/etc/passwd", "a/b", "a%2Fb", "a%2fb", "lock", "Größe", "a b", "a\0b", ".hidden", "A", "a", "x.state-new"]
        for (index, name) in names.enumerated() { try store.write(name, [UInt8(index)]) }
        for (index, name) in names.enumerated() { #expect(try store.read(name) == [UInt8(index)], "\(name)") }
        #expect(try self.names().count == names.count + 1)
        #expect(Set(names.compactMap { StateFileName($0)?.file }).count == names.count)
        for name in ["", String(repeating: "x", count: 201), String(repeating: "/", count: 67)] {
            #expect { try store.write(name, [1]) } throws: { ($0 as? FileStateStoreError)?.reason == .badName }
            #expect { try store.read(name) } throws: { "\($0)".contains("1 to 200 bytes") }
        }
        try store.write(String(repeating: "x", count: 200), [1])
    }

    @Test func `C42 a cut, damaged, foreign or newer file is kept aside and counts as absent, with the reason`() throws {
        let store = store()
        try store.write("cart", Array("forty-two".utf8))
        let good = try bytes("cart.state")
        var newer = StateFile.header(nonce: 1, version: 2)
        newer += [1, 2, 3]
        var flipped = good
        flipped[good.count - 1] ^= 1
        for (bad, text) in [
            (Array(good.dropLast()), "the file is truncated to 56 bytes of 57"), (Array(good.prefix(5)), "truncated to 5 bytes"),
            ([], "truncated to 0 bytes"),
            (newer, "the file has the newer format 2; this program reads up to 1"), (flipped, "the checksum is wrong"),
            (Array("# a configuration file".utf8), "the file is not a state file"),
        ] {
            try put(bad, "cart.state")
            guard case .setAside(let reason) = try store.load("cart") else {
                Issue.record("\(text)")
                continue
            }
            #expect(reason.contains(text), "\(reason)")
            #expect(reports.all.last == .keptAside(name: "cart", path: directory.path + "/cart.state-aside-1", reason: reason))
            #expect(reports.all.last?.description.contains("starts clean: \(reason)") == true)
            #expect(try bytes("cart.state-aside-1") == bad)
            #expect(try store.load("cart") == .absent)
        }
        // Six files were set aside, and the last three are left.
        #expect(try names() == ["cart.state-aside-1", "cart.state-aside-2", "cart.state-aside-3", "lock"])
        #expect(try bytes("cart.state-aside-3") == newer)
        try store.setAside("cart", reason: "nothing is there")
        #expect(try bytes("cart.state-aside-1") == Array("# a configuration file".utf8) && reports.all.count == 6)
    }

    @Test func `T35 an incomplete change is dropped, and the next change takes that place`() throws {
        do {
            let store = store()
            try store.write("cart", [1, 2, 3])
            #expect(try store.append([4, 4, 4], to: "cart") && store.append([5, 5, 5], to: "cart"))
        }
        let whole = try bytes("cart.state")
        for cut in 1..<27 {
            try put(Array(whole.dropLast(cut)), "cart.state")
            let store = store()
            #expect(try store.load("cart") == .state(base: [1, 2, 3], deltas: [[4, 4, 4]]))
            #expect(reports.all.last == .tailDropped(name: "cart", byteCount: 27 - cut))
            #expect(try store.append([6], to: "cart"))
            #expect(try store.load("cart") == .state(base: [1, 2, 3], deltas: [[4, 4, 4], [6]]))
            #expect(try bytes("cart.state").count == whole.count - 2)
        }
    }

    @Test func `remains of interrupted writes are removed at the first use`() throws {
        for index in 0..<3 { try put([1], "cart-\(index).state-new") }
        try put([2], "somebody-else's")
        #expect(try store().load("cart") == .absent)
        #expect(try names() == ["lock", "somebody-else's"] && reports.all == [.swept(count: 3)])
    }

    @Test func `stores of one directory in a process share the state`() async throws {
        let first = store(), second = FileStateStore(directory: directory.path + "/")
        try first.write("cart", [1])
        #expect(try second.read("cart") == [1] && second.append([2], to: "cart"))
        #expect(try first.append([3], to: "cart"))
        #expect(try second.load("cart") == .state(base: [1], deltas: [[2], [3]]))
        // Many writers at once: each name ends with one writer's whole content.
        await withTaskGroup(of: Void.self) { group in
            for writer in UInt8(0)..<8 {
                group.addTask {
                    for turn in 0..<20 {
                        let bytes = [UInt8](repeating: writer, count: 3000)
                        do {
                            try first.write("cart-\(turn % 3)", bytes)
                            _ = try second.append(bytes, to: "cart-\(turn % 3)")
                            let read = try second.read("cart-\(turn % 3)")
                            #expect(read?.count == 3000 && Set(read ?? []).count == 1)
                        } catch {
                            Issue.record("\(error)")
                        }
                    }
                }
            }
        }
        for turn in 0..<3 {
            guard case .state(let base, let deltas) = try first.load("cart-\(turn)") else {
                Issue.record("the state is gone")
                continue
            }
            #expect(([base] + deltas).allSatisfy { $0.count == 3000 && Set($0).count == 1 })
        }
        #expect(reports.all.isEmpty)
    }

    @Test func `stores of one directory share the state with any spelling of the path, also before the directory is made`() throws {
        let link = directory.path + "/link", place = directory.path + "/kept"
        try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: false)
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: place)
        do {
            let first = FileStateStore(directory: place + "/a/b"), second = FileStateStore(directory: link + "//a/./b/")
            try first.write("cart", [1])
            #expect(try second.append([2], to: "cart") && first.append([3], to: "cart"))
            let third = FileStateStore(directory: link + "/./a/b")
            #expect(try third.load("cart") == .state(base: [1], deltas: [[2], [3]]) && third.append([4], to: "cart"))
            #expect(Flock(place + "/a/b/lock", text: nil) == nil)
            #expect(try first.append([5], to: "cart"))
        }
        // The last store has released the lock.
        let other = try #require(Flock(place + "/a/b/lock", text: nil))
        other.release()
    }

    @Test func `one process has a directory, and another process is refused with the owner's pid`() throws {
        let holder = try #require(Flock(directory.path + "/lock", text: "4711\n"))
        let store = store()
        for use in [{ try store.write("cart", [1]) }, { _ = try store.load("cart") }, { try store.remove("cart") }] {
            do {
                try use()
                Issue.record("two processes have the directory")
            } catch let error as FileStateStoreError {
                #expect(error.reason == .heldByAnother(process: 4711))
                #expect(error.description.contains("cannot use \(directory.path) because process 4711"), "\(error)")
            }
        }
        holder.release()
        try store.write("cart", [1])
        #expect(try bytes("lock") == Array("\(getpid())\n".utf8))
        #expect(Flock(directory.path + "/lock", text: nil) == nil)
        // C48: the store holds no lock while the process may be frozen. The next use takes the lock again.
        store.relinquish()
        let other = try #require(Flock(directory.path + "/lock", text: nil))
        #expect { try store.append([2], to: "cart") } throws: { ($0 as? FileStateStoreError)?.reason == .heldByAnother(process: getpid()) }
        other.release()
        #expect(try !store.append([2], to: "cart"))
        #expect(try store.read("cart") == [1] && store.append([2], to: "cart"))
    }

    @Test func `C24 the operator's mark can be set from outside, during the run and after`() throws {
        let store = store()
        try store.write("cart", [1])
        #expect(try !store.isMarkedKilledByOperator())
        try FileStateStore.markKilledByOperator(directory: directory.path)
        #expect(try store.isMarkedKilledByOperator())
        try store.clearKilledByOperatorMark()
        try store.clearKilledByOperatorMark()
        #expect(try !store.isMarkedKilledByOperator())
        try put(Array("any text".utf8), "killed-by-operator")
        #expect(try store.isMarkedKilledByOperator() && names() == ["cart.state", "killed-by-operator", "lock"])
        try store.clearKilledByOperatorMark()
        try FileManager.default.createSymbolicLink(
            atPath: directory.path + "/killed-by-operator", withDestinationPath: "/nowhere")
        #expect(try store.isMarkedKilledByOperator())
        try store.clearKilledByOperatorMark()
        #expect(try !store.isMarkedKilledByOperator())
        #expect(try !FileStateStore(directory: directory.path + "/not/there").isMarkedKilledByOperator())
        try FileStateStore.markKilledByOperator(directory: directory.path + "/not/there")
        #expect(try FileStateStore(directory: directory.path + "/not/there").isMarkedKilledByOperator())
    }

    @Test func `a link, a directory or a FIFO in the place of a state is an error, not state`() throws {
        let store = store()
        try FileManager.default.createSymbolicLink(atPath: directory.path + "/link.state", withDestinationPath: "/etc/hostname")
        try FileManager.default.createDirectory(atPath: directory.path + "/folder.state", withIntermediateDirectories: false)
        #expect(mkfifo(directory.path + "/fifo.state", 0o600) == 0)
        for name in ["link", "folder", "fifo"] { #expect(throws: FileStateStoreError.self, "\(name)") { try store.read(name) } }
    }

    @Test func `a file of an impossible size is kept aside unread`() throws {
        let store = store()
        try put([], "cart.state")
        #expect(truncate(directory.path + "/cart.state", 1 << 40) == 0)
        #expect(try store.load("cart") == .setAside(reason: "the file has 1099511627776 bytes, more than a state may have"))
    }
}

/// An open file with the lock, as in another process.
private final class Flock {
    private var file: Int32

    /// Takes the lock; `nil` if the lock is taken already.
    init?(_ path: String, text: String?) {
        file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard flock(file, LOCK_EX | LOCK_NB) == 0 else {
            close(file)
            return nil
        }
        if let text { _ = write(file, text, text.utf8.count) }
    }

    func release() {
        // A child that another test is starting may have the file open, too.
        flock(file, LOCK_UN)
        close(file)
    }
}
