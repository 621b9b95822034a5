/// What inotify says, read from the bytes of its queue: total, whatever the bytes are.
struct FileEvent: Equatable {
    /// Which directory; -1 for none in particular.
    var descriptor: Int32
    var mask: UInt32
    /// Of what lies in the directory; empty for the directory itself.
    var name: String

    /// The bits of `linux/inotify.h`.
    static let modified: UInt32 = 0x2, attributes: UInt32 = 0x4, written: UInt32 = 0x8
    static let movedFrom: UInt32 = 0x40, movedTo: UInt32 = 0x80, created: UInt32 = 0x100, deleted: UInt32 = 0x200
    static let selfDeleted: UInt32 = 0x400, selfMoved: UInt32 = 0x800
    static let unmounted: UInt32 = 0x2000, overflow: UInt32 = 0x4000, ignored: UInt32 = 0x8000
    static let onlyDirectories: UInt32 = 0x0100_0000, addMask: UInt32 = 0x2000_0000

    /// Told of a directory on the way: that it itself goes.
    static let ofWay = selfDeleted | selfMoved | onlyDirectories | addMask
    /// Told of a directory in which a link or something missing is looked up.
    static let ofNames = ofWay | movedFrom | movedTo | created | deleted
    /// Told of the directory that the file is in.
    static let ofFile = ofNames | modified | written | attributes

    /// Whether the way to the file may be another now.
    var movesThings: Bool { mask & ~(Self.modified | Self.written | Self.attributes) != 0 }

    /// The events in `bytes`, up to the first that is cut off.
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
            events.append(FileEvent(descriptor: Int32(bitPattern: number(0)), mask: number(4), name: String(decoding: name, as: UTF8.self)))
            position += 16 + length
        }
        return events
    }
}
