import Glibc
import PlimsollLinux
import Synchronization

/// A simulated kernel with cgroup version 2. An incident writes the texts of the files, and every parser of the
/// library reads them. No file ever becomes ready.
final class IncidentKernel: Kernel {
    private struct State {
        var files: [String: String] = [:]
        var open: [Int32: String] = [:]
        var lastFile: Int32 = 2
    }

    private let state: Mutex<State>

    init(_ files: [String: String]) { state = Mutex(State(files: files)) }

    /// Replaces the text of `path`.
    func set(_ path: String, _ text: String) { state.withLock { $0.files[path] = text } }

    func open(_ path: String, _ access: FileAccess) -> Int32 {
        state.withLock { state in
            guard state.files[path] != nil else { return -ENOENT }
            state.lastFile += 1
            state.open[state.lastFile] = path
            return state.lastFile
        }
    }

    func close(_ file: Int32) { state.withLock { $0.open[file] = nil } }

    func read(_ file: Int32, from offset: Int, into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
        state.withLock { state in
            guard let path = state.open[file], let text = state.files[path] else { return -Int(ENODEV) }
            let bytes = Array(text.utf8.dropFirst(offset).prefix(buffer.count))
            for (index, byte) in bytes.enumerated() { buffer[index] = byte }
            return bytes.count
        }
    }

    func drain(_ file: Int32) -> Int { -Int(EAGAIN) }
    func write(_ file: Int32, _ bytes: UnsafeBufferPointer<UInt8>) -> Int { -Int(EACCES) }
    func connect(_ path: String) -> Int32 { -ECONNREFUSED }
    func makeWatch() -> Int32 { -EMFILE }
    func watchWrites(to path: String, _ watch: Int32) -> Int32 { -ENOENT }
    func wait(for files: UnsafeMutableBufferPointer<pollfd>, nanoseconds: Int64) -> Int { 0 }
    var processID: Int32 { 42 }

    func status(of path: String) -> FileStatus {
        state.withLock { state in
            if state.files[path] != nil { return .regular(path.hasPrefix("/proc") ? .proc : .cgroup2) }
            return state.files.keys.contains { $0.hasPrefix(path + "/") } ? .directory : .failed(ENOENT)
        }
    }

    func makeEvent() -> Int32 {
        state.withLock { state in
            state.lastFile += 1
            return state.lastFile
        }
    }
}
