import Foundation
import Plimsoll
import PlimsollDemos
import PlimsollService

/// Finds the admin socket to use if the user names none.
struct AdminSockets {
    /// A socket found in a usual place.
    struct Found: Hashable {
        var path: String
        /// Reason why the socket cannot be used; `nil` if a service answers there.
        var problem: String?
    }

    static let variable = "PLIMSOLL_SOCKET"

    var environment: (String) -> String? = AdminPath.variable
    /// Returns the names in a directory; none if the directory cannot be read.
    var names: (String) -> [String] = { (try? FileManager.default.contentsOfDirectory(atPath: $0)) ?? [] }
    /// Returns why no service can be reached at a path; `nil` if one can.
    var problem: (String) -> String? = { path in
        do throws(AdminError) {
            _ = try AdminClient(path: path)
            return nil
        } catch { return error.description }
    }

    /// Returns the socket to use.
    func choose() throws -> String {
        if let path = environment(Self.variable), !path.isEmpty { return path }
        let found = candidates().map { Found(path: $0, problem: problem($0)) }
        let usable = found.filter { $0.problem == nil }
        if usable.count == 1 { return usable[0].path }
        throw Failure.unavailable(Self.sentence(found, searched: places().map(\.pattern)))
    }

    private static func sentence(_ found: [Found], searched: [String]) -> String {
        let advice = "name one with --socket PATH or $\(variable)"
        guard !found.isEmpty else {
            return
                "cannot find an admin socket (\(searched.joined(separator: ", "))); \(advice), and check that the service starts an AdminEndpoint"
        }
        let count = found.count { $0.problem == nil }
        let list = found.map { "\n  \(printable($0.path))" + ($0.problem.map { "  (\(printable($0)))" } ?? "") }
            .joined()
        return "\(count == 0 ? "no admin socket answers" : "\(count) admin sockets answer"): \(advice)\(list)"
    }

    /// Returns the usual places of sockets: runtime directories of the service manager, and those of the user.
    private func places() -> [(pattern: String, list: () -> [String])] {
        var places: [(String, () -> [String])] = []
        if let directory = environment("RUNTIME_DIRECTORY")?.split(separator: ":").first {
            places.append(
                (
                    "\(directory)/\(AdminPath.name)",
                    { names(String(directory)).filter { $0 == AdminPath.name }.map { "\(directory)/\($0)" } }
                ))
        }
        if let directory = environment("XDG_RUNTIME_DIR"), !directory.isEmpty {
            let isOurs = { (name: String) in name.hasPrefix("plimsoll-") && name.hasSuffix(".sock") }
            places.append(
                ("\(directory)/plimsoll-*.sock", { names(directory).filter(isOurs).map { "\(directory)/\($0)" } }))
            places.append(("\(directory)/*/\(AdminPath.name)", { below(directory) }))
        }
        places.append(("/run/*/\(AdminPath.name)", { below("/run") }))
        return places
    }

    private func below(_ directory: String) -> [String] {
        names(directory).filter { names("\(directory)/\($0)").contains(AdminPath.name) }.map {
            "\(directory)/\($0)/\(AdminPath.name)"
        }
    }

    private func candidates() -> [String] {
        var seen: Set<String> = []
        // A variable may end with a slash, and one socket must not count as two.
        let paths = places().flatMap { $0.list() }.map { $0.replacing("//", with: "/") }
        return paths.sorted().filter { seen.insert($0).inserted }
    }
}
