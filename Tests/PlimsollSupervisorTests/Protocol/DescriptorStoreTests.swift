import CPlimsollSupervisor
import Glibc
import Plimsoll
import PlimsollLinux
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// Memory in descriptors that units have stored at the supervisor.
@Suite(.serialized, .needs(access("/dev/shm", W_OK) == 0, "no memory file system here")) struct DescriptorStoreTests {
    private let plenty = DescriptorStore.Room(count: 1000, bytes: .gibibytes(1))

    /// Returns a memory file of `size` bytes, of which `filled` bytes are allocated.
    private func memoryFile(_ size: ByteCount, filled: ByteCount) -> KeptDescriptor {
        let path = "/dev/shm/plimsoll-kept-\(getpid())"
        let file = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0o600)
        unlink(path)
        #expect(file >= 0 && ftruncate(file, off_t(size.bytes)) == 0 && (filled == .zero || posix_fallocate(file, 0, off_t(filled.bytes)) == 0))
        return KeptDescriptor(file, of: "web")
    }

    @Test func `kept memory is measured by the allocated pages, and bounded`() {
        var store = DescriptorStore()
        #expect(store.keep([memoryFile(.gibibytes(8), filled: .mebibytes(40))], name: "a", room: plenty) == 0)
        #expect(store.memory == .mebibytes(40))
        #expect(store.keep([memoryFile(.mebibytes(40), filled: .mebibytes(40))], name: "b", room: plenty) == 1)
        #expect(store.keep([memoryFile(.mebibytes(2), filled: .mebibytes(2))], name: "c", room: .init(count: 5, bytes: .mebibytes(1))) == 1)
        #expect(store.keep([memoryFile(.mebibytes(24), filled: .mebibytes(24))], name: "d", room: plenty) == 0)
        #expect(store.kept.count == 2 && store.memory == DescriptorStore.mostBytes)
        store.remove("a")
        #expect(store.memory == .mebibytes(24))
    }

    @Test func `kept memory that has grown too large is dropped, the newest first, and sockets stay`() throws {
        var store = DescriptorStore(), ends: [Int32] = [0, 0]
        #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let (old, new) = (memoryFile(.mebibytes(100), filled: .mebibytes(8)), memoryFile(.mebibytes(100), filled: .mebibytes(8)))
        #expect(store.keep([old, new, KeptDescriptor(ends[0])], name: "x", room: plenty) == 0)
        #expect(posix_fallocate(new.file, 0, 70 << 20) == 0)
        let dropped = store.shrink(to: DescriptorStore.mostBytes)
        #expect(dropped.count == 1 && dropped.bytes == .mebibytes(70) && store.memory == .mebibytes(8) && store.kept.count == 2)
        #expect(store.shrink(to: .zero).count == 1 && store.kept.count == 1 && store.memory == .zero)
        close(ends[1])
    }

    @Test func `a socket is kept even if memory files kept before have grown past the bounds, and no other file is`() {
        var store = DescriptorStore(), ends: [Int32] = [0, 0]
        #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let grown = memoryFile(.mebibytes(100), filled: .zero)
        #expect(store.keep([grown], name: "x", room: plenty) == 0)
        #expect(posix_fallocate(grown.file, 0, 70 << 20) == 0)
        // Other units have used up the memory of all units.
        let none = DescriptorStore.Room(count: 5, bytes: .mebibytes(-1))
        #expect(store.keep([KeptDescriptor(ends[0])], name: "x", room: none) == 0 && store.kept.count == 2)
        #expect(store.keep([memoryFile(.mebibytes(1), filled: .mebibytes(1))], name: "x", room: plenty) == 1)
        close(ends[1])
    }

    @Test func `no descriptor is kept near the limit of open files`() throws {
        // The first supervisor of this process raises the limit, perhaps at this moment.
        _ = plimsoll_raise_file_limit()
        var store = DescriptorStore()
        let file = memoryFile(.mebibytes(1), filled: .zero)
        let high = fcntl(file.file, F_DUPFD_CLOEXEC, Int32(ForeignCloser.openLimit) - 10)
        try #require(high >= 0)
        #expect(store.keep([KeptDescriptor(high)], name: "x", room: plenty) == 1 && store.kept.isEmpty)
        #expect(store.keep([file], name: "x", room: plenty) == 0)
    }

    @Test(.needs(access("/usr/bin/python3", X_OK) == 0, "no python here that would send descriptors"))
    func `an ended unit's kept memory is charged to the unit, and released at critical`() async throws {
        let script = """
            import os, socket
            say = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            say.connect(os.environ['NOTIFY_SOCKET'])
            file = os.memfd_create('state')
            os.write(file, b'x' * (8 << 20))
            one, other = socket.socketpair()
            socket.send_fds(say, [b'FDSTORE=1\\nFDNAME=state'], [file, one.fileno()])
            """
        var unit = ServiceUnit(name: "web", origin: .command(["/usr/bin/python3", "-c", script]))
        unit.restart = .never
        let fleet = try RunningFleet([unit, .shell("other")])
        #expect(await fleet.waits { fleet.state("web") == .stopped && fleet.report("web")?.charge == .mebibytes(8) })
        fleet.push()
        #expect(await fleet.waits { fleet.report("web")?.charge == .zero })
        #expect(fleet.problems == ["web: closed 1 descriptors with 8 MiB of memory, kept for the next start: memory is critical"])
        #expect(await fleet.stop())
    }
}
