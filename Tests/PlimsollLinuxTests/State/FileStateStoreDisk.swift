import Glibc
import Plimsoll
import Synchronization

@testable import PlimsollLinux

/// A kernel with a disk. Written data is in the kernel's memory until a synchronization. The Nth call fails, or is the
/// point of a power loss.
final class DiskKernel: StateKernel {
    enum Persistence: CaseIterable { case once, forever }

    /// Contents of a disk after a power loss: names and contents reach the disk independently.
    enum PowerLoss: CaseIterable { case onlySynchronized, everything, namesWithoutContents, contentsWithoutNames, tornContents, zeroedContents }

    final class Inode {
        var data: [UInt8] = []
        var synchronized: [UInt8] = []
        init(_ data: [UInt8] = []) { (self.data, synchronized) = (data, data) }
    }

    struct State {
        var names: [String: Inode] = [:]
        var synchronizedNames: [String: Inode] = [:]
        var directories: Set<String> = ["/"]
        /// Files of another user, which cannot be opened.
        var forbidden: Set<String> = []
        var files: [Int32: (path: String, inode: Inode?)] = [:]
        var locked: [ObjectIdentifier: Int32] = [:]
        var lastFile: Int32 = 2
        var calls: [String] = []
        var failingCall = Int.max
        var persistence = Persistence.once
        var failure = EIO
        /// True if a failing write first takes some bytes.
        var isShort = false
        var faultWasReached = false
        var processID: Int32 = 42
    }

    // A test uses a kernel from one thread. With several threads, each call holds this lock.
    private let state: Mutex<State>

    init(directory: String) {
        var state = State()
        state.directories.insert(directory)
        self.state = Mutex(state)
    }

    /// Creates the same disk after a power loss.
    init(_ other: DiskKernel, after loss: PowerLoss) {
        state = Mutex(State())
        other.state.withLock { old in
            let names = [.onlySynchronized, .contentsWithoutNames].contains(loss) ? old.synchronizedNames : old.names
            let contents = names.mapValues { inode in
                switch loss {
                case .onlySynchronized, .namesWithoutContents: inode.synchronized
                case .everything, .contentsWithoutNames: inode.data
                case .tornContents:
                    inode.data == inode.synchronized ? inode.data : Array(inode.data.prefix((inode.data.count + inode.synchronized.count) / 2))
                case .zeroedContents: inode.synchronized + [UInt8](repeating: 0, count: max(0, inode.data.count - inode.synchronized.count))
                }
            }
            let directories = old.directories
            state.withLock { new in
                for (path, bytes) in contents {
                    let inode = Inode(bytes)
                    (new.names[path], new.synchronizedNames[path]) = (inode, inode)
                }
                new.directories = directories
            }
        }
    }

    func edit(_ change: (inout State) -> Void) { state.withLock { change(&$0) } }
    var faultWasReached: Bool { state.withLock { $0.faultWasReached } }
    var calls: [String] { state.withLock { $0.calls } }
    var names: [String] { state.withLock { $0.names.keys.sorted() } }
    func contents(_ path: String) -> [UInt8]? { state.withLock { $0.names[path]?.data } }
    func put(_ bytes: [UInt8], at path: String) {
        state.withLock { state in
            let inode = Inode(bytes)
            (state.names[path], state.synchronizedNames[path]) = (inode, inode)
        }
    }

    /// Makes the `nth` call from now on fail.
    func fail(_ nth: Int, _ persistence: Persistence, _ failure: Int32, isShort: Bool = false) {
        state.withLock { state in
            state.failingCall = nth == .max ? .max : state.calls.count + nth
            (state.persistence, state.failure, state.isShort, state.faultWasReached) = (persistence, failure, isShort, false)
        }
    }

    private func call(_ name: String, _ path: String, _ body: (inout State) -> Int) -> Int {
        state.withLock { state in
            state.calls.append("\(name) \(path)")
            let fails = state.persistence == .once ? state.calls.count == state.failingCall : state.calls.count >= state.failingCall
            guard fails else { return body(&state) }
            state.faultWasReached = true
            return -Int(state.failure)
        }
    }

    private static func parent(_ path: String) -> String { String(path[..<path.lastIndex(of: "/")!]) }

    func open(_ path: String, _ access: StateFileAccess) -> Int32 {
        Int32(
            call("open", path) { state in
                if access == .directory {
                    guard state.directories.contains(path) else { return -Int(ENOENT) }
                    state.lastFile += 1
                    state.files[state.lastFile] = (path, nil)
                    return Int(state.lastFile)
                }
                guard state.directories.contains(Self.parent(path)) else { return -Int(ENOENT) }
                if state.forbidden.contains(path) { return -Int(EACCES) }
                if state.names[path] == nil {
                    guard access == .replacing || access == .locking else { return -Int(ENOENT) }
                    state.names[path] = Inode()
                }
                if access == .replacing { state.names[path]!.data = [] }
                state.lastFile += 1
                state.files[state.lastFile] = (path, state.names[path])
                return Int(state.lastFile)
            })
    }

    func close(_ file: Int32) {
        state.withLock { state in
            state.files[file] = nil
            state.locked = state.locked.filter { $0.value != file }
        }
    }

    func length(_ file: Int32) -> Int {
        call("fstat", path(file)) { $0.files[file]?.inode?.data.count ?? -Int(EBADF) }
    }

    func isOwn(_ file: Int32) -> Bool { true }

    func read(_ file: Int32, from offset: Int, into buffer: UnsafeMutableRawBufferPointer) -> Int {
        var chunk: [UInt8] = []
        // Reads in chunks, as a kernel may.
        let most = min(buffer.count, 4096)
        let result = call("pread", path(file)) { state in
            guard let data = state.files[file]?.inode?.data else { return -Int(EBADF) }
            chunk = Array(data.dropFirst(offset).prefix(most))
            return chunk.count
        }
        buffer.copyBytes(from: chunk)
        return result
    }

    func write(_ file: Int32, at offset: Int, _ bytes: UnsafeRawBufferPointer) -> Int {
        let chunk = Array(bytes.prefix(4096)), half = Array(bytes.prefix(bytes.count / 2))
        let result = call("pwrite", path(file)) { state in
            guard let inode = state.files[file]?.inode else { return -Int(EBADF) }
            return Self.write(inode, offset, chunk)
        }
        if result < 0 {
            state.withLock { state in
                if state.isShort, let inode = state.files[file]?.inode { _ = Self.write(inode, offset, half) }
            }
        }
        return result
    }

    private static func write(_ inode: Inode, _ offset: Int, _ bytes: [UInt8]) -> Int {
        if inode.data.count < offset + bytes.count { inode.data += [UInt8](repeating: 0, count: offset + bytes.count - inode.data.count) }
        inode.data.replaceSubrange(offset..<offset + bytes.count, with: bytes)
        return bytes.count
    }

    func truncate(_ file: Int32, to length: Int) -> Int32 {
        Int32(
            call("ftruncate", path(file)) { state in
                guard let inode = state.files[file]?.inode else { return -Int(EBADF) }
                inode.data = Array(inode.data.prefix(length))
                return 0
            })
    }

    func synchronize(_ file: Int32) -> Int32 {
        Int32(
            call("fsync", path(file)) { state in
                guard let (path, inode) = state.files[file] else { return -Int(EBADF) }
                if let inode {
                    inode.synchronized = inode.data
                } else {
                    state.synchronizedNames = state.synchronizedNames.filter { Self.parent($0.key) != path }
                    for (name, inode) in state.names where Self.parent(name) == path { state.synchronizedNames[name] = inode }
                }
                return 0
            })
    }

    func rename(_ old: String, to new: String) -> Int32 {
        Int32(
            call("rename", old) { state in
                guard let inode = state.names.removeValue(forKey: old) else { return -Int(ENOENT) }
                state.names[new] = inode
                return 0
            })
    }

    func unlink(_ path: String) -> Int32 {
        Int32(call("unlink", path) { $0.names.removeValue(forKey: path) == nil ? -Int(ENOENT) : 0 })
    }

    func makeDirectory(_ path: String) -> Int32 {
        Int32(
            call("mkdir", path) { state in
                guard !state.directories.contains(path) else { return -Int(EEXIST) }
                let parent = Self.parent(path)
                guard state.directories.contains(parent.isEmpty ? "/" : parent) else { return -Int(ENOENT) }
                state.directories.insert(path)
                return 0
            })
    }

    func names(in directory: String) -> Result<[String], KernelError> {
        var names: [String] = []
        let result = call("readdir", directory) { state in
            names = state.names.keys.filter { Self.parent($0) == directory }.map { String($0.dropFirst(directory.count + 1)) }.sorted()
            return 0
        }
        return result < 0 ? .failure(KernelError(number: Int32(-result))) : .success(names)
    }

    func lock(_ file: Int32) -> Int32 {
        Int32(
            call("flock", path(file)) { state in
                guard let inode = state.files[file]?.inode else { return -Int(EBADF) }
                if let holder = state.locked[ObjectIdentifier(inode)], holder != file { return -Int(EWOULDBLOCK) }
                state.locked[ObjectIdentifier(inode)] = file
                return 0
            })
    }

    func unlock(_ file: Int32) { state.withLock { state in state.locked = state.locked.filter { $0.value != file } } }

    var processID: Int32 { state.withLock { $0.processID } }

    private func path(_ file: Int32) -> String { state.withLock { $0.files[file]?.path ?? "?" } }
}
