import Plimsoll

extension AuditRecord {
    /// The error for a line that is not a record.
    package struct Mistake: Error, Sendable, Hashable, CustomStringConvertible {
        package var description: String
    }

    /// Parses a line, with or without its newline. Ignores keys that this version doesn't know.
    package init(parsing line: some StringProtocol) throws(Mistake) {
        let fields: Fields
        do {
            fields = Fields(values: try FlatJSON(line.hasSuffix("\n") ? line.dropLast() : line[...]).values)
        } catch { throw Mistake(description: error.description) }
        let version = try fields.integer("v")
        guard version == Self.version else {
            throw Mistake(description: "the journal has version \(version); this program reads version \(Self.version)")
        }
        at = try fields.duration("at")
        unit = try fields.string("unit")
        // The length is checked as for real units, since names are printed.
        guard UnitValues.isUnitName(unit) else { throw Mistake(description: "unit is not the name of a unit") }
        action = try fields.action()
        reason = try fields.string("reason")
        level = try fields.level("level")
        shortfall = ByteCount(try fields.integer("shortfall"))
        isDryRun = try fields.bool("dry") ?? false
        switch try fields.string("what") {
        case "decision": result = nil
        case "outcome":
            let failure = fields.values["failure"] == nil ? nil : try fields.string("failure")
            result = Result(
                took: try fields.duration("took"), relief: ByteCount(try fields.integer("relief")), failure: failure)
        default: throw Mistake(description: "what is neither decision nor outcome")
        }
    }
}

/// The fields of a line, each with its required type.
private struct Fields {
    let values: [String: FlatJSON.Value]

    private func value(_ key: String) throws(AuditRecord.Mistake) -> FlatJSON.Value {
        guard let value = values[key] else { throw AuditRecord.Mistake(description: "\(key) is missing") }
        return value
    }

    func string(_ key: String) throws(AuditRecord.Mistake) -> String {
        guard case .string(let text) = try value(key) else {
            throw AuditRecord.Mistake(description: "\(key) is not a string")
        }
        return text
    }

    func integer(_ key: String) throws(AuditRecord.Mistake) -> Int {
        guard case .integer(let number) = try value(key) else {
            throw AuditRecord.Mistake(description: "\(key) is not an integer")
        }
        return number
    }

    /// Returns the flag under `key`; `nil` if the key is absent.
    func bool(_ key: String) throws(AuditRecord.Mistake) -> Bool? {
        guard let value = values[key] else { return nil }
        guard case .bool(let flag) = value else {
            throw AuditRecord.Mistake(description: "\(key) is not true or false")
        }
        return flag
    }

    func duration(_ key: String) throws(AuditRecord.Mistake) -> Duration { .microseconds(try integer(key)) }

    func level(_ key: String) throws(AuditRecord.Mistake) -> PressureLevel {
        let name = try string(key)
        if let level = PressureLevel(name: name) { return level }
        throw AuditRecord.Mistake(description: "\(key) is not normal, warning or critical")
    }

    func action() throws(AuditRecord.Mistake) -> UnitAction {
        guard let kind = UnitAction.Kind(rawValue: try string("action")) else {
            throw AuditRecord.Mistake(description: "action is not a known action")
        }
        switch kind {
        case .warn: return .warn(try level("told"))
        case .release: return .release(ByteCount(try integer("bytes")))
        case .reclaim: return .reclaim(ByteCount(try integer("bytes")))
        case .share:
            return .share(
                ProcessShare(bytes: values["bytes"] == nil ? nil : try integer("bytes"), total: try integer("of")))
        case .background: return .background
        case .suspend: return .suspend
        case .start: return .start
        case .resume:
            guard let reason = UnitAction.ResumeReason(rawValue: try string("how")) else {
                throw AuditRecord.Mistake(description: "how is not a known reason to resume")
            }
            return .resume(reason)
        case .throttle:
            guard let on = try bool("on") else { throw AuditRecord.Mistake(description: "on is missing") }
            return .throttle(on)
        case .end:
            switch try string("how") {
            case "kill-suspended": return .end(.killSuspended)
            case "kill": return .end(.kill)
            case "ask": return .end(.ask(grace: try duration("grace")))
            default: throw AuditRecord.Mistake(description: "how is not a known way to end")
            }
        }
    }
}
