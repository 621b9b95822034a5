@testable import Plimsoll
@testable import PlimsollSupervisor

let fileFormats = [
    Format(name: "audit") { bytes in
        let text = String(decoding: bytes, as: UTF8.self)
        guard let record = try? AuditRecord(parsing: text) else { return }
        let again = try? AuditRecord(parsing: record.line)
        require(again == record, "a record is read as written: \(record.line)")
    },
    Format(name: "units") { bytes in
        do throws(UnitsFileError) {
            let file = try UnitsFile(String(decoding: bytes, as: UTF8.self))
            require(Set(file.units.map(\.name)).count == file.units.count, "names of units differ")
            _ = try? SupervisorPolicy(file)
        } catch {
            require(!error.description.isEmpty, "an error says why")
        }
    },
]
