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
    static let unmounted: UInt32 = 0x2000, overflow: UInt32 = 0x4000, ignored: UInt32 = 0x8000
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
