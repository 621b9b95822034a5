import CPlimsollHeap

/// Names for the rows of a census.
struct ObjectNames {
    private var types: TypeNames

    init(_ heap: OpaquePointer) { types = TypeNames(heap) }

    mutating func name(of type: plimsoll_census_type) -> String {
        switch UInt32(type.kind) {
        case PLIMSOLL_CENSUS_CLASS.rawValue: types.name(ofMetadata: type.metadata)
        case PLIMSOLL_CENSUS_CAPTURE.rawValue: capture(type.metadata)
        case PLIMSOLL_CENSUS_BOX.rawValue: box(type.metadata)
        case PLIMSOLL_CENSUS_ERROR.rawValue: "error"
        case PLIMSOLL_CENSUS_TASK.rawValue: "task"
        default: cpp(type.metadata)
        }
    }

    private mutating func box(_ metadata: UInt64) -> String {
        guard let boxed: UInt64 = types.read(metadata + 16) else { return "box" }
        return "box of \(types.name(ofMetadata: boxed))"
    }

    /// A closure's context, by the captured types, and by its place where the program has no description.
    private mutating func capture(_ metadata: UInt64) -> String {
        guard let descriptor: UInt64 = types.read(metadata + 16), descriptor != 0,
            let count: UInt32 = types.read(descriptor), count > 0, count < 64
        else { return "closure at \(place(metadata))" }
        let names = (0..<UInt64(count)).map { index in
            types.relative(descriptor + 12 + index * 4).flatMap { MangledName.type(at: $0, types) }
        }
        let place = names.contains(nil) ? " at \(place(metadata))" : ""
        return TypeNames.bounded("closure capturing \(names.map { $0 ?? "?" }.joined(separator: ", "))\(place)")
    }

    private func place(_ address: UInt64) -> String {
        var path = [CChar](repeating: 0, count: 4097), offset: UInt64 = 0
        guard plimsoll_census_image(types.heap, address, &path, path.count, &offset) else { return "?" }
        let whole = String(decoding: path.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        return "\(whole.split(separator: "/").last ?? "?")+0x\(String(offset, radix: 16))"
    }

    /// The name in a C++ class's typeinfo, with the parts of a nested name told apart.
    private func cpp(_ table: UInt64) -> String {
        guard let info: UInt64 = types.read(table - 8), let text: UInt64 = types.read(info &+ 8),
            let mangled = types.string(text)
        else { return "C++ object" }
        var rest = Substring(mangled), parts: [String] = []
        if rest.first == "N" { rest.removeFirst() }
        if rest.hasPrefix("St") {
            rest.removeFirst(2)
            parts.append("std")
        }
        while let digits = Int(rest.prefix { $0.isNumber }), digits > 0 {
            rest = rest.drop { $0.isNumber }
            parts.append(String(rest.prefix(digits)))
            rest = rest.dropFirst(digits)
        }
        return parts.isEmpty || !(rest.isEmpty || rest == "E") ? "C++ \(mangled)" : parts.joined(separator: "::")
    }
}
