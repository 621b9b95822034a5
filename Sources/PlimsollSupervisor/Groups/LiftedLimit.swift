/// A limit of a group's that is set for a while, and the text that lifts it.
package struct LiftedLimit: Sendable {
    package var directory: GroupDirectory
    package var file: String
    package var text: String
    /// What is set, for whoever lifts it later: another value by then is somebody else's.
    package var present: String

    package init(_ directory: GroupDirectory, _ file: String, _ text: String, present: String = "") {
        (self.directory, self.file, self.text, self.present) = (directory, file, text, present)
    }

    /// Whether a line of the file begins with that value.
    static func isSet(_ value: String, in line: some StringProtocol) -> Bool {
        line == value || line.hasPrefix(value + " ")
    }

    /// Lifts it, unless another value is there by now; a group that is gone has no limits.
    package func lift() {
        guard case .success(let now) = GroupText.read(file, in: directory.descriptor) else { return }
        let lines = String(decoding: now, as: UTF8.self).split(separator: "\n")
        guard present.isEmpty || lines.contains(where: { Self.isSet(present, in: $0) }) else { return }
        try? directory.write(text, to: file, for: .throttle)
    }
}
