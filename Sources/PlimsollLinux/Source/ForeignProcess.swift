#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
package import Plimsoll

/// Another process's memory as a source inside that process would see it, read-only. Opens no file for writing,
/// connects to nothing, and arms no event source.
package struct ForeignProcess: Sendable {
    private let kernel: ProcessKernel
    private let source: LinuxPressureSource

    /// Creates a view of `process`.
    ///
    /// - Returns: `nil` if there is no process of that number.
    package init?(_ process: Int32) { self.init(process, HostKernel(), isApart: ProcessKernel.isApart(process)) }

    /// Creates a view of `process` on `host`.
    ///
    /// - Parameter isApart: true if the process has mounts of its own.
    init?(_ process: Int32, _ host: any Kernel, isApart: Bool) {
        kernel = ProcessKernel(host: host, process: process, isApart: isApart)
        guard case .regular = kernel.status(of: "/proc/self/cgroup") else { return nil }
        source = LinuxPressureSource(options: .init(usesTriggers: false), kernel: kernel)
    }

    /// Returns a reading of the files of the process's group.
    package func read(at now: Duration) throws -> PressureReading { try source.read(at: now) }

    /// The signals of the process. Signals that only the process itself can probe are reported dead, with that reason.
    package var capabilities: Capabilities {
        var capabilities = source.capabilities
        capabilities.signals = capabilities.signals.map { signal in
            var signal = signal
            signal.detail = signal.detail.replacing("/proc/self/", with: "/proc/\(kernel.processID)/")
            let isUnknown =
                switch signal.name {
                case "stall trigger": signal.detail == "not requested"
                case "usage thresholds": !signal.isLive && signal.detail.contains("cgroup.event_control")
                case "throttle": signal.detail == "not requested"
                default: false
                }
            if isUnknown {
                (signal.detail, signal.remedy) = (
                    "not probed: a probe writes to the group, which only the process itself may do", nil
                )
            }
            if signal.name == "announced" { announce(&signal) }
            return signal
        }
        return capabilities
    }

    private func announce(_ signal: inout Capabilities.Signal) {
        switch kernel.contents(of: "/proc/self/environ") {
        case .failure(let error):
            signal.detail = "not known: /proc/\(kernel.processID)/environ: \(error)"
            signal.remedy = "run doctor as the process's user, or as root"
        case .success(let bytes):
            let name = "MEMORY_PRESSURE_WATCH="
            let variable = bytes.split(separator: 0).lazy.map { String(decoding: $0, as: UTF8.self) }.first {
                $0.hasPrefix(name)
            }
            guard let variable else { return }
            signal.detail =
                "not probed: $MEMORY_PRESSURE_WATCH is \(variable.dropFirst(name.count)), which only the process itself may open"
            signal.remedy = nil
        }
    }
}

/// The kernel in another process's view: that process's files under `/proc`, and paths in that process's mounts.
struct ProcessKernel: Kernel {
    let host: any Kernel
    let process: Int32
    /// True if the process has mounts of its own. They are reached through its root.
    let isApart: Bool

    var processID: Int32 { process }

    static func isApart(_ process: Int32) -> Bool {
        func mounts(_ name: String) -> [UInt8]? {
            withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { buffer in
                let count = readlink("/proc/\(name)/ns/mnt", buffer.baseAddress!, buffer.count)
                return count < 0 ? nil : buffer[..<count].map { UInt8(bitPattern: $0) }
            }
        }
        // A caller that may not see the mounts may not go through the root either.
        guard let its = mounts("\(process)"), let own = mounts("self") else { return false }
        return its != own
    }

    private func place(_ path: String) -> String {
        if path.hasPrefix("/proc/self/") { return "/proc/\(process)/" + path.dropFirst("/proc/self/".count) }
        return path.hasPrefix("/proc/") || !isApart ? path : "/proc/\(process)/root" + path
    }

    func open(_ path: String, _ access: FileAccess) -> Int32 {
        access == .reading ? host.open(place(path), .reading) : -EACCES
    }
    func close(_ file: Int32) { host.close(file) }
    func read(_ file: Int32, from offset: Int, into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
        host.read(file, from: offset, into: buffer)
    }
    func drain(_ file: Int32) -> Int { host.drain(file) }
    func write(_ file: Int32, _ bytes: UnsafeBufferPointer<UInt8>) -> Int { -Int(EACCES) }
    func status(of path: String) -> FileStatus { host.status(of: place(path)) }
    func connect(_ path: String) -> Int32 { -EACCES }
    func makeEvent() -> Int32 { host.makeEvent() }
    func makeWatch() -> Int32 { host.makeWatch() }
    func watchWrites(to path: String, _ watch: Int32) -> Int32 { host.watchWrites(to: place(path), watch) }
    func wait(for files: UnsafeMutableBufferPointer<pollfd>, nanoseconds: Int64) -> Int {
        host.wait(for: files, nanoseconds: nanoseconds)
    }
}
#endif
