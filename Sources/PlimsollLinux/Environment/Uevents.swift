#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll
import PlimsollLifecycle

/// A kernel message about a device (`lib/kobject_uevent.c`): a heading and variables, each ended by a zero byte.
struct Uevent: Equatable {
    /// `add`, `remove`, `change`, `move`, `online`, `offline`, `bind`, `unbind`.
    var action: String
    /// The device's path below `/sys`.
    var path: String
    var subsystem: String

    /// Parses a message. Fails for messages that are not from the kernel, such as udev's own, or that lack one of the
    /// three variables.
    init?(_ bytes: Span<UInt8>) {
        var action: String?, path: String?, subsystem: String?
        var start = 0
        while start < bytes.count {
            var line: [UInt8] = []
            while start < bytes.count, bytes[start] != 0 {
                line.append(bytes[start])
                start += 1
            }
            start += 1
            guard let equals = line.firstIndex(of: UInt8(ascii: "=")) else { continue }
            let value = String(decoding: line[(equals + 1)...], as: UTF8.self)
            switch String(decoding: line[..<equals], as: UTF8.self) {
            case "ACTION": action = value
            case "DEVPATH": path = value
            case "SUBSYSTEM": subsystem = value
            default: break
            }
        }
        guard let action, let path, let subsystem, path.hasPrefix("/") else { return nil }
        (self.action, self.path, self.subsystem) = (action, path, subsystem)
    }
}

/// Listens to the kernel's uevents for the watched subsystems (C70).
struct DeviceWatch {
    typealias Kind = EnvironmentChange.Kind

    private(set) var eventSource = EventSource(POLLIN)
    private(set) var retry = RetryState()
    private(set) var kinds: Set<Kind> = []
    private let kernel: any EnvironmentKernel

    init(_ kernel: any EnvironmentKernel) { self.kernel = kernel }

    mutating func add(_ kind: Kind, at now: Duration) {
        kinds.insert(kind)
        arm(at: now)
    }

    mutating func remove(_ kind: Kind) {
        kinds.remove(kind)
        if kinds.isEmpty { close() }
    }

    mutating func close() {
        eventSource.closed(kernel)
        retry = RetryState()
    }

    mutating func repair(at now: Duration, asked: Bool) -> Set<Kind> {
        guard !kinds.isEmpty, eventSource.file < 0, retry.isDue(at: now, asked: asked) else { return [] }
        arm(at: now)
        return kinds
    }

    private mutating func arm(at now: Duration) {
        guard eventSource.file < 0 else { return }
        let file = kernel.openUevents()
        if file < 0 { return retry.failed(Int(file), at: now) }
        eventSource.file = file
        retry.isWhole()
    }

    mutating func collect(at now: Duration) -> [Kind: Int] {
        guard eventSource.file >= 0 else { return [:] }
        var counts: [Kind: Int] = [:], hasMessages = false
        // The kernel's messages have at most 2048 bytes of variables (UEVENT_BUFFER_SIZE) and a heading.
        let buffer = TextBuffer(capacity: 8192)
        for _ in 0..<256 {
            let count = kernel.receiveUevent(eventSource.file, into: buffer.bytes)
            if count == -Int(EAGAIN) { break }
            hasMessages = true
            if count == -Int(ENOBUFS) {
                // Some messages were lost: anything may have happened.
                for kind in kinds { counts[kind, default: 0] += 1 }
            } else if count < 0 {
                if count == -Int(EBADF) { eventSource.file = -1 }
                eventSource.closed(kernel)
                retry.failed(count, at: now)
                for kind in kinds { counts[kind, default: 0] += 1 }
                break
            } else if let event = Uevent(UnsafeMutableBufferPointer(rebasing: buffer.bytes[..<count]).span) {
                let kind: Kind = event.subsystem == "power_supply" ? .power : .device(event.subsystem)
                if kinds.contains(kind) { counts[kind, default: 0] += 1 }
            }
        }
        // Messages of other subsystems, too.
        if hasMessages { eventSource.rang(at: now, pause: .milliseconds(10)) }
        return counts
    }
}
#endif
