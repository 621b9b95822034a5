/// Reads one answer of HTTP/1.1 with a length from the chunks in which it comes.
struct Answer {
    private(set) var status = 0
    /// True for content from the cache, false for content that was made; `nil` for an answer that has no `x-cache`.
    private(set) var isHit: Bool?
    private(set) var isComplete = false
    /// True once the bytes cannot be an answer of HTTP/1.1 with a length.
    private(set) var isMalformed = false

    private var head: [UInt8] = []
    private var bodyLeft: Int?

    private static let mostHead = 16 << 10

    /// Takes the next chunk.
    mutating func read(_ chunk: UnsafeRawBufferPointer) {
        guard !chunk.isEmpty, !isMalformed else { return }
        if let left = bodyLeft { return takeBody(chunk.count, left) }
        let searched = max(0, head.count - 3)
        head.append(contentsOf: chunk)
        guard let end = Self.end(of: head, from: searched) else {
            isMalformed = head.count > Self.mostHead
            return
        }
        guard let length = readHead(String(decoding: head[..<end], as: UTF8.self)) else {
            isMalformed = true
            return
        }
        takeBody(head.count - end, length)
        head = []
    }

    private mutating func takeBody(_ count: Int, _ left: Int) {
        bodyLeft = left - count
        isMalformed = count > left
        isComplete = count == left
    }

    /// Returns the length of the body; `nil` if there is none to be read.
    private mutating func readHead(_ text: String) -> Int? {
        // As bytes: a carriage return and a line feed are one character.
        let lines = text.utf8.split(separator: 10).map { Substring($0.last == 13 ? $0.dropLast() : $0) }
        guard let first = lines.first, first.hasPrefix("HTTP/1.1 "), let status = Int(first.dropFirst(9).prefix(3))
        else { return nil }
        self.status = status
        var length: Int?
        for line in lines.dropFirst() {
            guard let colon = line.firstIndex(of: ":") else { continue }
            let value = line[line.index(after: colon)...].drop { $0 == " " }
            switch line[..<colon].lowercased() {
            case "content-length": length = Int(value)
            case "x-cache": isHit = value == "hit"
            default: break
            }
        }
        return length
    }

    private static func end(of bytes: [UInt8], from start: Int) -> Int? {
        guard bytes.count >= 4 else { return nil }
        for index in start...(bytes.count - 4)
        where bytes[index] == 13 && bytes[index + 1] == 10 && bytes[index + 2] == 13 && bytes[index + 3] == 10 {
            return index + 4
        }
        return nil
    }
}
