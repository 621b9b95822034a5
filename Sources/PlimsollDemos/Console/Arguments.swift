public import ArgumentParser
public import Plimsoll

/// Sizes on the command line: `256M`, `1.5GiB`, `4096`.
extension ByteCount: ExpressibleByArgument {}

/// Checks shared by several commands. Each failure is a sentence that names the allowed values.
package enum Allowed {
    package static func seconds(_ value: Double?, _ option: String, in range: ClosedRange<Double>) throws {
        guard let value else { return }
        guard value.isFinite, range.contains(value) else {
            throw ValidationError(
                "\(option) is \(value); allowed are seconds from \(Text.number(range.lowerBound)) to \(Text.number(range.upperBound))."
            )
        }
    }

    package static func size(_ value: ByteCount?, _ option: String, in range: ClosedRange<ByteCount>) throws {
        guard let value else { return }
        guard range.contains(value) else {
            throw ValidationError(
                "\(option) is \(value); allowed is \(range.lowerBound) to \(range.upperBound), for example 256M.")
        }
    }

    package static func count(_ value: Int, _ option: String, in range: ClosedRange<Int>) throws {
        guard range.contains(value) else {
            throw ValidationError("\(option) is \(value); allowed is \(range.lowerBound) to \(range.upperBound).")
        }
    }

    package static func factor(_ value: Double, _ option: String, in range: ClosedRange<Double>) throws {
        guard range.contains(value) else {
            throw ValidationError(
                "\(option) is \(value); allowed is \(Text.number(range.lowerBound)) to \(Text.number(range.upperBound))."
            )
        }
    }

    /// Returns the parts of a comma-separated list, each the raw value of a `Choice`, without duplicates.
    package static func list<Choice: RawRepresentable & CaseIterable & Equatable>(_ text: String, _ option: String)
        throws
        -> [Choice]
    where Choice.RawValue == String {
        var choices: [Choice] = []
        for part in text.split(separator: ",", omittingEmptySubsequences: false) {
            guard let choice = Choice(rawValue: String(part)) else {
                let allowed = Choice.allCases.map(\.rawValue).joined(separator: ", ")
                throw ValidationError("\(option) names \"\(part)\"; allowed are \(allowed), separated by commas.")
            }
            if !choices.contains(choice) { choices.append(choice) }
        }
        return choices
    }
}
