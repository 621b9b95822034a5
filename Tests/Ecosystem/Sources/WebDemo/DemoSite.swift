import Hummingbird
import Plimsoll
import PlimsollService

/// Pictures from memory that the kernel may take, sessions that can be made again, and reports that take memory while they are made.
struct DemoSite: Sendable {
    private let pictures = VolatileCache<Int, [UInt8]>("pictures", rebuildCost: .cheap)
    private let sessions: PurgeableCache<Int, [UInt8]>

    private static let sessionSize = 16 << 10
    /// What a report takes while it is made.
    private static let reportSize = 2 << 20

    init(_ manager: ResourceManager, sessionLimit: ByteCount) {
        sessions = PurgeableCache("sessions", limit: sessionLimit, rebuildCost: .expensive, cost: { $1.count + 96 })
        manager.register(pictures)
        manager.register(sessions)
    }

    /// Somebody waits for a log-in, nobody for a report.
    static func priority(_ path: String) -> RequestPriority {
        if path.hasPrefix("/report") { return .sheddable }
        return path.hasPrefix("/session") ? .critical : .normal
    }

    func addRoutes(to router: Router<BasicRequestContext>) {
        router.get("/") { _, _ in "pictures: /picture/1, sessions: /session/1, reports: /report/1, operators: /plimsoll/ui\n" }
        router.get("/picture/:id") { [pictures] _, context in
            let id = try Self.number(context)
            let bytes = try await pictures.value(forKey: id) { Picture.draw(id) }
            return Response(status: .ok, headers: [.contentType: "image/bmp"], body: .init(byteBuffer: ByteBuffer(bytes: bytes)))
        }
        router.get("/session/:id") { [sessions] _, context in
            let id = try Self.number(context)
            let session = try await sessions.value(forKey: id) { [UInt8](repeating: UInt8(truncatingIfNeeded: id), count: Self.sessionSize) }
            return "session \(id) of \(session.count) bytes\n"
        }
        router.get("/report/:id") { _, context in
            let id = try Self.number(context)
            let rows = [UInt8](repeating: UInt8(truncatingIfNeeded: id | 1), count: Self.reportSize)
            // Made at the pace of a database that is asked for each page.
            try await Task.sleep(for: .milliseconds(250))
            return "report \(id) of \(rows.count) rows\n"
        }
    }

    private static func number(_ context: BasicRequestContext) throws -> Int {
        guard let text = context.parameters.get("id"), let number = Int(text), (0...1_000_000).contains(number) else {
            throw HTTPError(.badRequest, message: "the id must be a whole number from 0 to 1000000")
        }
        return number
    }
}

/// A picture that costs a little to make, always the same for a number: 128 pixels wide, 64 to 319 high, as a bitmap file.
enum Picture {
    static func draw(_ number: Int) -> [UInt8] {
        let width = 128, height = 64 + number % 256, size = 54 + width * height * 3
        var bytes: [UInt8] = []
        bytes.reserveCapacity(size)
        bytes += [0x42, 0x4d]
        for word in [size, 0, 54, 40, width, height, 1 | 24 << 16, 0, 0, 2835, 2835, 0, 0] {
            for shift in [0, 8, 16, 24] { bytes.append(UInt8(truncatingIfNeeded: word >> shift)) }
        }
        for row in 0..<height {
            for column in 0..<width {
                bytes.append(UInt8(truncatingIfNeeded: number &* 37 &+ row))
                bytes.append(UInt8(truncatingIfNeeded: column * 2))
                bytes.append(UInt8(truncatingIfNeeded: number ^ (row &* column) >> 4))
            }
        }
        return bytes
    }
}
