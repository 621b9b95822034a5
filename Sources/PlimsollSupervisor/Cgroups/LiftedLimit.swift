/// A temporary limit of a group, and the text that lifts the limit.
package struct LiftedLimit: Sendable {
    package var directory: GroupDirectory
    package var file: String
    package var text: String
    /// The value that was set. `lift` leaves any other value alone, as another process must have set it.
    package var present: String

    package init(_ directory: GroupDirectory, _ file: String, _ text: String, present: String = "") {
        (self.directory, self.file, self.text, self.present) = (directory, file, text, present)
    }

    /// Returns true if a line of the file begins with `value`.
    static func isSet(_ value: String, in line: some StringProtocol) -> Bool {
        line == value || line.hasPrefix(value + " ")
    }

    /// Lifts the limit, unless another value has been set since. A group that is gone has no limits.
    package func lift() {
        guard case .success(let now) = GroupText.read(file, in: directory.descriptor) else { return }
        let lines = String(decoding: now, as: UTF8.self).split(separator: "\n")
        guard present.isEmpty || lines.contains(where: { Self.isSet(present, in: $0) }) else { return }
        try? directory.write(text, to: file, for: .throttle)
    }
}
