#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll

/// The system calls, in their order. Every call that can fail is checked. Errors name the call and the file.
extension StateDirectory {
    func at(_ file: String) -> String { path + "/" + file }

    /// The file name of the operator's mark, which tells that the process was ended by hand.
    private static let markName = "killed-by-operator"

    // MARK: - Writing

    /// Replaces the old file by a new one. A reader finds one or the other, even after a crash.
    func replace(_ name: StateFileName, _ bytes: [UInt8]) throws(FileStateStoreError) -> Tail {
        let unharmed = "the state saved before is untouched"
        let nonce = UInt64.random(in: .min ... .max)
        var head = StateFile.header(nonce: nonce)
        head += StateFile.recordHeader(bytes, number: 0, at: head.count, nonce: nonce)
        let new = at(name.new), path = at(name.file)
        let file = kernel.open(new, .replacing)
        if file < 0 { throw FileStateStoreError("open", new, number: -file, consequence: unharmed) }
        var failure = fill(file, new, head, at: 0) ?? fill(file, new, bytes, at: head.count)
        failure = failure ?? problem(kernel.synchronize(file), "fsync", new)
        kernel.close(file)
        failure = failure ?? problem(kernel.rename(new, to: path), "rename", new)
        if var failure {
            _ = kernel.unlink(new)
            failure.consequence = unharmed
            throw failure
        }
        try synchronizeDirectory("the new state is in place, but a power failure may still bring the old one back")
        return Tail(nonce: nonce, length: head.count + bytes.count)
    }

    /// Appends a record to the file. If that fails, the record is cut off again. If that fails too, no more records are
    /// appended. The next write is a whole one, because the state of a file after a failed `fsync` is unknown.
    func extend(_ name: StateFileName, _ tail: Tail, _ delta: [UInt8]) throws(FileStateStoreError) -> Tail {
        let path = at(name.file), unharmed = "the state saved before is untouched"
        let record = StateFile.recordHeader(delta, number: tail.count, at: tail.end, nonce: tail.nonce) + delta
        let file = kernel.open(path, .changing)
        if file < 0 { throw FileStateStoreError("open", path, number: -file, consequence: unharmed) }
        defer { kernel.close(file) }
        if tail.isTorn {
            if let problem = problem(kernel.truncate(file, to: tail.end), "ftruncate", path, unharmed) { throw problem }
        }
        if var failure = fill(file, path, record, at: tail.end) ?? problem(kernel.synchronize(file), "fsync", path) {
            let isCut = kernel.truncate(file, to: tail.end) >= 0
            failure.consequence =
                isCut ? unharmed : "the change may or may not be stored; the next checkpoint writes the whole state"
            throw failure
        }
        var grown = tail
        grown.end += record.count
        grown.count += 1
        grown.isTorn = false
        return grown
    }

    /// Returns the error of a call that returned a negative errno.
    private func problem(_ result: Int32, _ call: String, _ path: String, _ consequence: String = "")
        -> FileStateStoreError?
    {
        result < 0 ? FileStateStoreError(call, path, number: -result, consequence: consequence) : nil
    }

    private func fill(_ file: Int32, _ path: String, _ bytes: [UInt8], at offset: Int) -> FileStateStoreError? {
        bytes.withUnsafeBytes { bytes in
            var done = 0
            while done < bytes.count {
                let count = kernel.write(file, at: offset + done, UnsafeRawBufferPointer(rebasing: bytes[done...]))
                if count < 0 { return FileStateStoreError("pwrite", path, number: Int32(clamping: -count)) }
                // A medium that takes no bytes and gives no reason would loop forever.
                if count == 0 { return FileStateStoreError("pwrite", path, number: EIO) }
                done += count
            }
            return nil
        }
    }

    private func synchronizeDirectory(_ consequence: String) throws(FileStateStoreError) {
        let file = kernel.open(path, .directory)
        if file < 0 { throw FileStateStoreError("open", path, number: -file, consequence: consequence) }
        defer { kernel.close(file) }
        if let problem = problem(kernel.synchronize(file), "fsync", path, consequence) { throw problem }
    }

    // MARK: - Reading

    /// Reads the whole file. Returns `nil` if there is none, and damage if the content cannot be a state.
    func contents(_ name: StateFileName) throws(FileStateStoreError) -> Result<[UInt8], StateFile.Damage>? {
        let path = at(name.file)
        let file = kernel.open(path, .reading)
        if file == -ENOENT { return nil }
        if file < 0 { throw FileStateStoreError("open", path, number: -file) }
        defer { kernel.close(file) }
        let length = kernel.length(file)
        if length < 0 { throw FileStateStoreError("fstat", path, number: Int32(clamping: -length)) }
        guard length <= 2 * Self.mostBytes + 4096 else {
            return .failure(StateFile.Damage(description: "the file has \(length) bytes, more than a state may have"))
        }
        var number = 0
        let bytes = [UInt8](unsafeUninitializedCapacity: length) { buffer, count in
            let buffer = UnsafeMutableRawBufferPointer(buffer)
            count = 0
            while count < length {
                let read = kernel.read(
                    file, from: count, into: UnsafeMutableRawBufferPointer(rebasing: buffer[count..<length]))
                if read < 0 { number = -read }
                if read <= 0 { return }
                count += read
            }
        }
        if number > 0 { throw FileStateStoreError("pread", path, number: Int32(clamping: number)) }
        return .success(bytes)
    }

    // MARK: - Moving

    /// Renames the file, and those set aside before; removes the oldest. Returns `nil` if there is no file.
    func putAside(_ name: StateFileName, _ title: String, _ reason: String) throws(FileStateStoreError)
        -> StateStoreReport?
    {
        guard try exists(at(name.file)) else { return nil }
        var places = [name.file] + (0..<StateFileName.mostAside).map { name.aside($0) }
        // Starts with the oldest, so that each file moves to a free name or replaces the one to be removed.
        while let to = places.popLast(), let from = places.last {
            let result = kernel.rename(at(from), to: at(to))
            if result < 0, result != -ENOENT {
                throw FileStateStoreError("rename", at(from), number: -result, consequence: "the state is unchanged")
            }
        }
        try synchronizeDirectory("the state is set aside, but a power failure may still bring it back")
        return .keptAside(name: title, path: at(name.aside(0)), reason: reason)
    }

    /// Removes a file, if there is one.
    func take(_ file: String) throws(FileStateStoreError) {
        let result = kernel.unlink(at(file))
        if result == -ENOENT { return }
        if result < 0 {
            throw FileStateStoreError("unlink", at(file), number: -result, consequence: "the state is unchanged")
        }
        try synchronizeDirectory("the state is removed, but a power failure may still bring it back")
    }

    // MARK: - The directory

    /// Opens and locks the file `lock`, and writes this process's number there.
    func takeLock() throws(FileStateStoreError) -> Int32 {
        let path = at("lock")
        var file = kernel.open(path, .locking)
        if file == -ENOENT {
            try makeDirectories()
            file = kernel.open(path, .locking)
        }
        if file < 0 { throw FileStateStoreError("open", path, number: -file) }
        let result = kernel.lock(file)
        if result < 0 {
            let holder = holder(file)
            kernel.close(file)
            if result == -EWOULDBLOCK {
                throw FileStateStoreError(
                    .heldByAnother(process: holder), self.path, consequence: "nothing was changed")
            }
            throw FileStateStoreError("flock", path, number: -result, consequence: "nothing was changed")
        }
        // Only for processes that find the file locked. The lock holds without this text.
        let line = Array("\(kernel.processID)\n".utf8)
        if kernel.truncate(file, to: 0) >= 0 { _ = fill(file, path, line, at: 0) }
        return file
    }

    private func holder(_ file: Int32) -> Int32? {
        var bytes = [UInt8](repeating: 0, count: 16)
        let count = bytes.withUnsafeMutableBytes { kernel.read(file, from: 0, into: $0) }
        return count > 0
            ? Int32(String(decoding: bytes[..<count].prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)) : nil
    }

    private func makeDirectories() throws(FileStateStoreError) {
        var missing: [String] = [], made: [String] = []
        var next = path
        while true {
            let result = kernel.makeDirectory(next)
            if result == -EEXIST { break }
            if result >= 0 {
                made.append(next)
                break
            }
            guard result == -ENOENT, let slash = next.lastIndex(of: "/"), slash > next.startIndex else {
                throw FileStateStoreError("mkdir", next, number: -result)
            }
            missing.append(next)
            next = String(next[..<slash])
        }
        for directory in missing.reversed() {
            let result = kernel.makeDirectory(directory)
            if result < 0, result != -EEXIST { throw FileStateStoreError("mkdir", directory, number: -result) }
            made.append(directory)
        }
        // Each new directory is an entry of the directory above.
        for directory in made {
            let above =
                directory.lastIndex(of: "/").map { $0 > directory.startIndex ? String(directory[..<$0]) : "/" } ?? "."
            let file = kernel.open(above, .directory)
            // This process may not read another user's directory. The owner of that directory must make it durable.
            guard file >= 0 else { continue }
            let result = kernel.synchronize(file)
            kernel.close(file)
            if result < 0 { throw FileStateStoreError("fsync", above, number: -result) }
        }
    }

    /// Removes files left by interrupted writes, and returns their number. Files that cannot be removed now are
    /// overwritten later.
    func sweep() -> Int {
        guard case .success(let names) = kernel.names(in: path) else { return 0 }
        return names.count { StateFileName.isLeftover($0) && kernel.unlink(at($0)) >= 0 }
    }

    // MARK: - The operator's mark

    func putMark() throws(FileStateStoreError) {
        let mark = at(Self.markName)
        var file = kernel.open(mark, .replacing)
        if file == -ENOENT {
            try makeDirectories()
            file = kernel.open(mark, .replacing)
        }
        if file < 0 { throw FileStateStoreError("open", mark, number: -file) }
        kernel.close(file)
        try synchronizeDirectory("the mark is written, but a power failure may still remove it")
    }

    /// Looks for the name in the directory: this process may not open a mark that root has made.
    func hasMark() throws(FileStateStoreError) -> Bool {
        switch kernel.names(in: path) {
        case .success(let names): return names.contains(Self.markName)
        case .failure(let error) where error.number == ENOENT: return false
        case .failure(let error): throw FileStateStoreError("readdir", path, number: error.number)
        }
    }

    func clearMark() throws(FileStateStoreError) { try take(Self.markName) }

    private func exists(_ path: String) throws(FileStateStoreError) -> Bool {
        let file = kernel.open(path, .reading)
        if file == -ENOENT { return false }
        if file < 0 { throw FileStateStoreError("open", path, number: -file) }
        kernel.close(file)
        return true
    }
}

extension StateDirectory.Tail {
    /// Creates the tail of a file just written whole.
    fileprivate init(nonce: UInt64, length: Int) {
        self.nonce = nonce
        end = length
        count = 1
        baseLength = length
        isTorn = false
    }
}
#endif
