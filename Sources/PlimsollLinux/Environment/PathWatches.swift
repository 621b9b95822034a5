#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll
import PlimsollLifecycle

/// Watches files through the directories and links on their paths. So a file put in place by renaming, by exchanging a
/// link, or by making the directory later is found (C66).
///
/// Each directory on the path is watched for removal. Directories in which a link, the file or a missing name is looked
/// up are also watched for changes of their names.
struct PathWatches {
    typealias Kind = EnvironmentChange.Kind

    /// One watched directory.
    private struct Place {
        /// The names looked up in the directory, with the kinds that depend on them.
        var names: [String: Set<Kind>] = [:]
        /// The kinds whose path leads through the directory.
        var through: Set<Kind> = []
    }

    /// The kernel's own limit of links (path_resolution(7)).
    private static let mostLinks = 40

    private(set) var eventSource = EventSource(POLLIN)
    private(set) var retry = RetryState()
    private var places: [Int32: Place] = [:]
    private var used: [Kind: Set<Int32>] = [:]
    /// The kinds whose paths must be followed again in the next retry.
    private(set) var broken: Set<Kind> = []
    private var paths: [Kind: [String]] = [:]
    private let kernel: any EnvironmentKernel
    /// Room for at least one event with the longest name, and for many of usual length.
    private static let queue = 16384

    init(_ kernel: any EnvironmentKernel) { self.kernel = kernel }

    var isEmpty: Bool { paths.isEmpty }
    var kinds: [Kind] { Array(paths.keys) }

    mutating func add(_ kind: Kind, _ paths: [String], at now: Duration) {
        self.paths[kind] = paths
        follow(kind, at: now)
    }

    mutating func remove(_ kind: Kind) {
        paths[kind] = nil
        broken.remove(kind)
        forget(kind)
        sweep()
        if broken.isEmpty { retry.isWhole() }
        if paths.isEmpty { close() }
    }

    mutating func close() {
        eventSource.closed(kernel)
        (places, used, broken, retry) = ([:], [:], [], RetryState())
    }

    /// Arms broken watches again, once the back-off is over. Returns the kinds that must be read again.
    mutating func repair(at now: Duration, asked: Bool) -> Set<Kind> {
        guard !broken.isEmpty, retry.isDue(at: now, asked: asked) else { return [] }
        let repaired = broken
        for kind in repaired { follow(kind, at: now) }
        if broken.isEmpty { retry.isWhole() }
        return repaired
    }

    /// Reads waiting events. Returns the number of events of each kind.
    mutating func collect(at now: Duration) -> [Kind: Int] {
        guard eventSource.file >= 0 else { return [:] }
        var counts: [Kind: Int] = [:], moved: Set<Kind> = [], hasEvents = false
        let buffer = TextBuffer(capacity: Self.queue)
        // The bound keeps an endless writer from holding the thread.
        for _ in 0..<64 {
            let count = kernel.receive(eventSource.file, into: buffer.bytes)
            if count <= 0 {
                if count != -Int(EAGAIN) { lost(-count, at: now, &counts) }
                break
            }
            hasEvents = true
            let read = UnsafeMutableBufferPointer(rebasing: buffer.bytes[..<count])
            for event in FileEvent.parse(read.span) { receive(event, &counts, &moved) }
        }
        for kind in moved where paths[kind] != nil { follow(kind, at: now) }
        if broken.isEmpty { retry.isWhole() }
        sweep()
        // Events of other files in the directory, too: their writers may be busy.
        if hasEvents, eventSource.file >= 0 { eventSource.rang(at: now, pause: .milliseconds(10)) }
        return counts
    }

    // MARK: Events

    private mutating func receive(_ event: FileEvent, _ counts: inout [Kind: Int], _ moved: inout Set<Kind>) {
        if event.mask & FileEvent.overflow != 0 {
            // The queue overflowed: anything may have happened.
            for kind in paths.keys {
                counts[kind, default: 0] += 1
                moved.insert(kind)
            }
            return
        }
        guard let place = places[event.descriptor] else { return }
        let concerned = event.name.isEmpty ? place.through : place.names[event.name] ?? []
        for kind in concerned {
            counts[kind, default: 0] += 1
            if event.movesThings { moved.insert(kind) }
        }
        if event.mask & FileEvent.ignored != 0 {
            // The kernel has removed the watch: the directory or the file system is gone.
            places[event.descriptor] = nil
            for kind in place.through { used[kind]?.remove(event.descriptor) }
        }
    }

    /// Handles the loss of the inotify descriptor.
    private mutating func lost(_ number: Int, at now: Duration, _ counts: inout [Kind: Int]) {
        if number == Int(EBADF) { eventSource.file = -1 }
        eventSource.closed(kernel)
        retry.failed(number, at: now)
        (places, used) = ([:], [:])
        broken = Set(paths.keys)
        for kind in broken { counts[kind, default: 0] += 1 }
    }

    // MARK: Paths

    private mutating func forget(_ kind: Kind) {
        for descriptor in used.removeValue(forKey: kind) ?? [] {
            places[descriptor]?.through.remove(kind)
            for name in places[descriptor]?.names.keys.map({ $0 }) ?? [] {
                places[descriptor]?.names[name]?.remove(kind)
            }
        }
    }

    /// Removes watches of directories that are on no path any more.
    private mutating func sweep() {
        for (descriptor, place) in places where place.through.isEmpty {
            places[descriptor] = nil
            kernel.unwatch(eventSource.file, descriptor)
        }
    }

    private mutating func follow(_ kind: Kind, at now: Duration) {
        forget(kind)
        broken.remove(kind)
        if eventSource.file < 0 {
            let watch = kernel.makeWatch()
            if watch < 0 { return fail(kind, Int(-watch), at: now) }
            eventSource.file = watch
        }
        for path in paths[kind] ?? [] {
            // An exchange while the path is followed makes the walk fail. Several failures in a row are not by chance.
            var error: KernelError?
            for _ in 0..<8 {
                error = walk(path, for: kind)
                if error?.number != ENOENT { break }
            }
            if let error { fail(kind, Int(error.number), at: now) }
        }
    }

    private mutating func fail(_ kind: Kind, _ number: Int, at now: Duration) {
        broken.insert(kind)
        retry.failed(number, at: now)
    }

    /// Watches the present path to `path`. A directory is watched before the search in it, so that no event in between
    /// is missed.
    private mutating func walk(_ path: String, for kind: Kind) -> KernelError? {
        var rest = path.split(separator: "/").reversed().map { String($0) }
        var directory = "", links = 0
        while let name = rest.popLast() {
            if name == "." { continue }
            if name == ".." {
                directory = directory.lastIndex(of: "/").map { String(directory[..<$0]) } ?? ""
                continue
            }
            let here = "\(directory)/\(name)"
            let found = kernel.details(of: here).kind
            if found == .directory, !rest.isEmpty {
                // A failure to watch this directory matters only if the directory itself is moved away.
                _ = attach(directory, nil, FileEvent.ofWay, kind)
                directory = here
                continue
            }
            if let error = attach(
                directory, name, found == .file || found == .directory ? FileEvent.ofFile : FileEvent.ofNames, kind)
            {
                return error
            }
            switch kernel.details(of: here).kind {
            case .link:
                links += 1
                guard links <= Self.mostLinks, let target = kernel.target(of: here) else {
                    return KernelError(number: links > Self.mostLinks ? ELOOP : ENOENT)
                }
                if target.hasPrefix("/") { directory = "" }
                rest += target.split(separator: "/").reversed().map { String($0) }
            case let now where now != found: return KernelError(number: ENOENT)
            case .missing, .unreachable, .file: return nil
            case .directory:
                return rest.isEmpty ? nil : KernelError(number: ENOENT)
            }
        }
        return nil
    }

    private mutating func attach(_ directory: String, _ name: String?, _ mask: UInt32, _ kind: Kind) -> KernelError? {
        let descriptor = kernel.watchDirectory(directory.isEmpty ? "/" : directory, eventSource.file, mask)
        guard descriptor >= 0 else { return KernelError(number: -descriptor) }
        places[descriptor, default: Place()].through.insert(kind)
        if let name { places[descriptor]?.names[name, default: []].insert(kind) }
        used[kind, default: []].insert(descriptor)
        return nil
    }
}

/// An inotify event, parsed from the bytes of the queue. The parser accepts any bytes.
struct FileEvent: Equatable {
    /// The watched directory; -1 for none in particular.
    var descriptor: Int32
    var mask: UInt32
    /// Name of the entry in the directory; empty for the directory itself.
    var name: String

    /// The bits of `linux/inotify.h`.
    static let modified: UInt32 = 0x2, attributes: UInt32 = 0x4, written: UInt32 = 0x8
    static let movedFrom: UInt32 = 0x40, movedTo: UInt32 = 0x80, created: UInt32 = 0x100, deleted: UInt32 = 0x200
    static let selfDeleted: UInt32 = 0x400, selfMoved: UInt32 = 0x800
    static let overflow: UInt32 = 0x4000, ignored: UInt32 = 0x8000
    static let onlyDirectories: UInt32 = 0x0100_0000, addMask: UInt32 = 0x2000_0000

    /// Events of a directory on the way to the file: the directory itself is moved or deleted.
    static let ofWay = selfDeleted | selfMoved | onlyDirectories | addMask
    /// Events of a directory in which a link or a missing name is looked up.
    static let ofNames = ofWay | movedFrom | movedTo | created | deleted
    /// Events of the directory that contains the file.
    static let ofFile = ofNames | modified | written | attributes

    /// True if the path to the file may have changed.
    var movesThings: Bool { mask & ~(Self.modified | Self.written | Self.attributes) != 0 }

    /// Parses the events in `bytes`, up to the first that is truncated.
    static func parse(_ bytes: Span<UInt8>) -> [FileEvent] {
        var events: [FileEvent] = []
        var position = 0
        func number(_ offset: Int) -> UInt32 {
            var value: UInt32 = 0
            for index in 0..<4 { value |= UInt32(bytes[position + offset + index]) << (8 * UInt32(index)) }
            return value
        }
        while position + 16 <= bytes.count {
            let length = Int(number(12))
            guard length <= bytes.count - position - 16 else { break }
            var name: [UInt8] = []
            for index in 0..<length {
                let byte = bytes[position + 16 + index]
                if byte == 0 { break }
                name.append(byte)
            }
            events.append(
                FileEvent(
                    descriptor: Int32(bitPattern: number(0)), mask: number(4),
                    name: String(decoding: name, as: UTF8.self)))
            position += 16 + length
        }
        return events
    }
}
#endif
