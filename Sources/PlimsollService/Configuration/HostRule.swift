import CPlimsollProcess

/// Rejects requests from pages of other sites, by the host that a request names.
///
/// The name of an attacker's host can be made to resolve to this machine (DNS rebinding). A browser then treats the
/// attacker's page and this server as one site, and lets the page read this server. The request still carries the
/// attacker's name. An address is not a name, and `localhost` resolves to this machine by definition, so both are
/// trusted. Any other name must be on the list.
struct HostRule {
    private let names: Set<String>

    /// Creates a rule.
    ///
    /// - Parameter names: further names to trust, in any case, with or without a dot at the end, without a port.
    init(_ names: some Sequence<String>) { self.names = Set(names.compactMap { Self.name($0[...]) }) }

    /// Returns true if `host`, the value of the header `Host` or of `:authority`, is trusted.
    func allows(_ host: String) -> Bool {
        guard host.utf8.count <= 300 else { return false }
        if host.hasPrefix("[") {
            guard let end = host.firstIndex(of: "]"), Self.isPort(host[host.index(after: end)...]) else { return false }
            return Self.isAddress(String(host[host.index(after: host.startIndex)..<end]), isVersion6: true)
        }
        let name = host.prefix { $0 != ":" }
        guard Self.isPort(host[name.endIndex...]) else { return false }
        if Self.isAddress(String(name), isVersion6: false) { return true }
        guard let name = Self.name(name) else { return false }
        return name == "localhost" || names.contains(name)
    }

    /// Returns a host name in the form used for comparison. Returns `nil` for text that is not a name: user
    /// information, lists, blanks, characters beyond ASCII.
    static func name(_ text: Substring) -> String? {
        let text = text.hasSuffix(".") ? text.dropLast() : text
        let isName =
            !text.isEmpty && text.utf8.count <= 253
            && text.split(separator: ".", omittingEmptySubsequences: false).allSatisfy { label in
                !label.isEmpty && label.utf8.count <= 63
                    && label.utf8.allSatisfy { byte in
                        byte == 45 || byte == 95 || (48...57).contains(byte) || (65...90).contains(byte)
                            || (97...122).contains(byte)
                    }
            }
        return isName ? text.lowercased() : nil
    }

    /// Returns true if `text` is a port suffix of a host: empty, or a colon and up to five digits.
    private static func isPort(_ text: Substring) -> Bool {
        guard !text.isEmpty else { return true }
        let digits = text.dropFirst()
        return text.hasPrefix(":") && digits.utf8.count <= 5 && digits.utf8.allSatisfy { (48...57).contains($0) }
    }

    /// Returns true if inet_pton(3) accepts `text` as an address. For IPv4 only four decimal numbers are accepted.
    private static func isAddress(_ text: String, isVersion6: Bool) -> Bool {
        !text.utf8.contains(0) && plimsoll_is_address(text, isVersion6)
    }
}
