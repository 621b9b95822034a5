import Glibc
import Plimsoll
import PlimsollLifecycle
import PlimsollLinux

/// State, watched files and exclusive resources of the service.
extension LifecycleService {
    /// Preserves the number of answered requests across runs.
    func preserveOrders() {
        lifecycle.preserve(
            "orders", in: FileStateStore(directory: directory + "/state"),
            snapshot: { [orders] in
                let count = orders.count
                LifecycleEvent(.saved, number: count).emit()
                return Array("\(count)".utf8)
            },
            restore: { [orders] bytes in
                guard let count = Int(String(decoding: bytes, as: UTF8.self)) else {
                    throw Failure.failed("\(bytes.count) bytes that are not a number")
                }
                orders.set(count)
            })
    }

    /// Watches the configuration, and reads the file again when the text changes.
    func watchFile() {
        let path = directory + "/service.conf"
        lifecycle.watch(file: path)
        lifecycle.onEnvironmentChange("configuration", .file(path)) { change in
            var event = LifecycleEvent(.changed, number: change.count)
            event.to = ControlFile.text(path)
            event.emit()
        }
    }

    /// Keeps a key in memory in the foreground only.
    func keepKey() throws -> Secret {
        let fill: @Sendable (inout MutableRawSpan) throws -> Void = { bytes in
            var random = SystemRandomNumberGenerator()
            for index in 0..<bytes.byteCount {
                bytes.storeBytes(of: random.next(), toByteOffset: index, as: UInt8.self)
            }
        }
        let key = lifecycle.keep(try Secret("key", byteCount: 32, fill: fill))
        LifecycleEvent(.filled).emit()
        lifecycle.observe(
            "key",
            onForeground: { _ in
                try key.refill(fill)
                LifecycleEvent(.filled).emit()
            })
        return key
    }

    /// Registers the lock and the listener as exclusive. Others wait for the lock, and clients for the listener: a
    /// process that does not run must hold neither.
    func holdExclusively(_ door: Door) throws -> (listener: ExclusiveResource, lock: ExclusiveResource) {
        let path = directory + "/lock"
        let file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw Failure.failed("cannot use \(path): \(String(cString: strerror(errno)))") }
        let lock = ExclusiveResource(
            "lock", after: ["http"], isHeld: false,
            release: {
                flock(file, LOCK_UN)
                LifecycleEvent(.unlocked).emit()
            },
            reacquire: { epoch in
                guard flock(file, LOCK_EX | LOCK_NB) == 0 else {
                    throw Failure.failed("cannot use \(path): \(String(cString: strerror(errno)))")
                }
                LifecycleEvent(.locked, number: Int(epoch)).emit()
            })
        let listener = ExclusiveResource(
            "http", isHeld: false,
            release: {
                door.close()
                LifecycleEvent(.closed).emit()
            },
            reacquire: { _ in LifecycleEvent(.listening, number: Int(try door.open())).emit() })
        try lifecycle.exclusive.add(lock)
        try lifecycle.exclusive.add(listener)
        return (listener, lock)
    }
}
