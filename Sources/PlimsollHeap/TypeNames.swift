import CPlimsollHeap

/// Names of types, read from their metadata in memory (include/swift/ABI/Metadata.h).
///
/// No call of the Swift runtime, which may take a lock or instantiate metadata, and each read may fail: a pointer that
/// only looks like metadata gives a poor name and no crash.
struct TypeNames {
    let heap: OpaquePointer
    private var known: [UInt64: String] = [:]
    /// Bounds of the number of names, and of the bytes of one. In the memory of a hostile process, types with many
    /// arguments may nest to terabytes of text.
    private static let most = 1 << 16, longest = 2000

    init(_ heap: OpaquePointer) { self.heap = heap }

    /// Returns the name as Swift's own `String(reflecting:)` has it, without the standard library's module.
    mutating func name(ofMetadata metadata: UInt64, depth: Int = 0) -> String {
        if let name = known[metadata] { return name }
        guard depth < 8, known.count < Self.most else { return "…" }
        let name = Self.bounded(describe(metadata, depth) ?? "?")
        known[metadata] = name
        return name
    }

    /// Returns the name, cut to the longest that is allowed.
    static func bounded(_ name: String) -> String {
        name.utf8.count <= longest ? name : String(decoding: name.utf8.prefix(longest), as: UTF8.self) + "…"
    }

    private mutating func describe(_ metadata: UInt64, _ depth: Int) -> String? {
        guard let kind: UInt64 = read(metadata) else { return nil }
        switch kind {
        case 0:
            guard let descriptor: UInt64 = read(metadata + 40) else { return nil }
            guard let own: UInt64 = genericOffset(ofClass: descriptor) else { return nil }
            return nominal(descriptor, arguments: metadata + own, depth)
        case 0x200, 0x201, 0x202:
            guard let descriptor: UInt64 = read(metadata + 8) else { return nil }
            return nominal(descriptor, arguments: metadata + 16, depth)
        case 0x301: return tuple(metadata, depth)
        case 0x302: return function(metadata, depth)
        case 0x303: return existential(metadata)
        case 0x304, 0x306:
            guard let instance: UInt64 = read(metadata + 8) else { return nil }
            return name(ofMetadata: instance, depth: depth + 1) + ".Type"
        default: return nil
        }
    }

    // MARK: Nominal types

    /// The place of a class's generic arguments: the first of its own members, which end the metadata. A class with a
    /// superclass from a library that may change has no fixed place.
    private func genericOffset(ofClass descriptor: UInt64) -> UInt64? {
        guard let flags: UInt32 = read(descriptor), let size: UInt32 = read(descriptor + 28),
            let members: UInt32 = read(descriptor + 32)
        else { return nil }
        let hasResilientSuperclass = flags >> 29 & 1 == 1
        return hasResilientSuperclass || members > size ? 0 : UInt64(size - members) * 8
    }

    private mutating func nominal(_ descriptor: UInt64, arguments: UInt64, _ depth: Int) -> String? {
        guard var levels = contexts(of: descriptor) else { return nil }
        if levels.first?.name == "Swift" && levels.count > 1 { levels.removeFirst() }
        let kinds = parameterKinds(of: descriptor)
        var done = 0
        let parts = levels.map { level in
            defer { done = max(done, level.parameters) }
            guard level.parameters > done, level.parameters <= kinds.count else { return level.name }
            let names = (done..<level.parameters).map { index in
                argument(arguments + UInt64(index) * 8, isValue: kinds[index] == 2, depth)
            }
            return "\(level.name)<\(names.joined(separator: ", "))>"
        }
        return parts.joined(separator: ".")
    }

    private mutating func argument(_ place: UInt64, isValue: Bool, _ depth: Int) -> String {
        guard let argument: UInt64 = read(place) else { return "?" }
        return isValue ? "\(Int(bitPattern: UInt(argument)))" : name(ofMetadata: argument, depth: depth + 1)
    }

    /// A module, or a type within one. `parameters` counts the generic parameters up to this level.
    private struct Level {
        var name: String
        var parameters: Int
    }

    /// Returns the contexts from the module inwards.
    private func contexts(of descriptor: UInt64) -> [Level]? {
        var levels: [Level] = [], at = descriptor
        for _ in 0..<32 {
            guard let flags: UInt32 = read(at) else { return nil }
            switch flags & 0x1f {
            case 0:
                guard let name = string(relative(at + 8)) else { return nil }
                return [Level(name: name, parameters: 0)] + levels
            case 16, 17, 18:
                guard let name = string(relative(at + 8)) else { return nil }
                levels.insert(Level(name: name, parameters: parameterKinds(of: at).count), at: 0)
            case 1:
                // A type in an extension: the extended type by a symbolic reference, then its own contexts.
                guard let extended = relative(at + 8), let tag: UInt8 = read(extended), tag == 1 || tag == 2,
                    let target = relative(extended + 1)
                else { break }
                guard tag == 2 else {
                    at = target
                    continue
                }
                guard let indirect: UInt64 = read(target) else { return nil }
                at = indirect
                continue
            case 3:
                guard let name = string(relative(at + 8)) else { return nil }
                levels.insert(Level(name: name, parameters: 0), at: 0)
            default: break
            }
            guard let parent = relative(at + 4, isIndirectable: true) else { return nil }
            at = parent
        }
        return nil
    }

    /// Returns the kinds of all generic parameters: 0 for a type, 1 for a pack, 2 for a value.
    private func parameterKinds(of descriptor: UInt64) -> [UInt8] {
        guard let flags: UInt32 = read(descriptor), flags & 0x80 != 0 else { return [] }
        let header = descriptor + (flags & 0x1f == 16 ? 44 : 28)
        guard let count: UInt16 = read(header + 8), count < 64 else { return [] }
        return (0..<UInt64(count)).map { index in
            let parameter: UInt8? = read(header + 16 + index)
            return (parameter ?? 0) & 0x3f
        }
    }

    // MARK: Other types

    private mutating func tuple(_ metadata: UInt64, _ depth: Int) -> String? {
        guard let count: UInt64 = read(metadata + 8), count < 32 else { return nil }
        let names = (0..<count).map { argument(metadata + 24 + $0 * 16, isValue: false, depth) }
        return "(\(names.joined(separator: ", ")))"
    }

    private mutating func function(_ metadata: UInt64, _ depth: Int) -> String? {
        guard let flags: UInt64 = read(metadata + 8), flags & 0xffff < 32 else { return nil }
        let names = (0..<flags & 0xffff).map { argument(metadata + 24 + $0 * 8, isValue: false, depth) }
        let effects = (flags >> 29 & 1 == 1 ? " async" : "") + (flags >> 24 & 1 == 1 ? " throws" : "")
        return "(\(names.joined(separator: ", ")))\(effects) -> \(argument(metadata + 16, isValue: false, depth))"
    }

    private func existential(_ metadata: UInt64) -> String? {
        guard let flags: UInt32 = read(metadata + 8), let count: UInt32 = read(metadata + 12), count < 32 else {
            return nil
        }
        if count == 0 { return flags >> 31 == 1 ? "Any" : "AnyObject" }
        let first = metadata + (flags >> 30 & 1 == 1 ? 24 : 16)
        let names = (0..<UInt64(count)).map { index -> String in
            guard let protocolDescriptor: UInt64 = read(first + index * 8),
                var levels = contexts(of: protocolDescriptor & ~1)
            else { return "?" }
            if levels.first?.name == "Swift" { levels.removeFirst() }
            return levels.map(\.name).joined(separator: ".")
        }
        return names.joined(separator: " & ")
    }

    /// Returns the name of the type, without generic arguments, to which a reference in a mangled name leads.
    func nameOfReference(at field: UInt64, isIndirect: Bool) -> String? {
        guard let target = relative(field) else { return nil }
        let indirect: UInt64? = isIndirect ? read(target) : target
        guard let descriptor = indirect, var levels = contexts(of: descriptor) else { return nil }
        if levels.first?.name == "Swift" && levels.count > 1 { levels.removeFirst() }
        return Self.bounded(levels.map(\.name).joined(separator: "."))
    }

    // MARK: Reading

    func read<Value: BitwiseCopyable>(_ address: UInt64) -> Value? {
        withUnsafeTemporaryAllocation(of: Value.self, capacity: 1) { value in
            let isRead = plimsoll_census_read(heap, address, value.baseAddress, MemoryLayout<Value>.size)
            return isRead ? value[0] : nil
        }
    }

    /// Follows a relative pointer (include/swift/Basic/RelativePointer.h); `nil` for a null one.
    func relative(_ field: UInt64, isIndirectable: Bool = false) -> UInt64? {
        guard let offset: Int32 = read(field), offset != 0 else { return nil }
        let target = field &+ UInt64(bitPattern: Int64(isIndirectable ? offset & ~1 : offset))
        return isIndirectable && offset & 1 == 1 ? read(target) : target
    }

    func string(_ address: UInt64?) -> String? {
        guard let address else { return nil }
        var bytes: [UInt8] = []
        while bytes.count < 512, let byte: UInt8 = read(address + UInt64(bytes.count)) {
            if byte == 0 { return String(decoding: bytes, as: UTF8.self) }
            bytes.append(byte)
        }
        return nil
    }
}
