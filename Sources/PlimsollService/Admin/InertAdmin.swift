#if !canImport(Glibc) || PLIMSOLL_INERT
import Plimsoll

// The admin socket away from Linux and glibc: the same names, and a refusal.

final class AdminServer: Sendable {
    let path: String

    init(path: String, handler: AdminCommandHandler, bounds: AdminEndpoint.Bounds, time: Timekeeper, tally: AdminTally)
        throws(AdminError)
    {
        throw AdminError(
            .failed,
            "cannot listen at the admin socket \"\(path)\" because this system is not Linux with glibc; use AdminPages")
    }

    func start() throws(AdminError) {}
    func stop() {}
    func ring() {}
}
#endif
