import ArgumentParser
import Plimsoll
import PlimsollDemos
import PlimsollService

/// Shows the memory status of a running service.
struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status", abstract: "Show the memory status of a running service, and its last action.")
    @OptionGroup var admin: AdminOptions

    func run() throws { try admin.ask(AdminRequest(.status)) { $0.status.map { AdminText.status($0) } ?? "" } }
}

/// Lists the purgeables of a running service.
struct CachesCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "caches",
        abstract: "List the caches and other purgeables of a running service, in the order of release.")
    @OptionGroup var admin: AdminOptions

    func run() throws { try admin.ask(AdminRequest(.caches)) { AdminText.caches($0.caches ?? []) } }
}

/// Lists the background tasks of a running service.
struct TasksCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "tasks", abstract: "List the background tasks of a running service.")
    @OptionGroup var admin: AdminOptions

    func run() throws { try admin.ask(AdminRequest(.tasks)) { $0.tasks.map { AdminText.tasks($0) } ?? "" } }
}

/// Has a running service release memory.
struct PurgeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "purge", abstract: "Release caches of a running service that can be rebuilt.",
        discussion: "For example: plimsoll purge --bytes 64M, purge --name thumbs, purge --up-to cheap, purge --all.")

    @Option(help: "Bytes to release; by default all that is selected.") var bytes: ByteCount?
    @Option(help: "Select purgeables with that name.") var name: String?
    @Option(help: "Select purgeables in that group; names joined by slashes.") var group: String?
    @Option(help: "Select purgeables registered with that tag.") var tag: String?
    @Option(help: "Select purgeables that cost no more to rebuild: trivial, cheap, expensive or precious.") var upTo:
        String?
    @Flag(help: "Everything.") var all = false
    @OptionGroup var admin: AdminOptions

    func validate() throws {
        try Allowed.size(bytes, "--bytes", in: .bytes(1)...ByteCount.max)
        guard [name, group, tag].count(where: { $0 != nil }) <= 1 else {
            throw ValidationError("Only one of --name, --group and --tag is allowed.")
        }
        let isNarrowed = name != nil || group != nil || tag != nil
        guard isNarrowed || bytes != nil || upTo != nil || all else {
            throw ValidationError(
                "Give --all to purge everything; otherwise give --bytes, --up-to, or one of --name, --group and --tag."
            )
        }
        guard !all || !isNarrowed else {
            throw ValidationError("--all excludes --name, --group and --tag; leave one of them out.")
        }
        if let upTo, !RebuildCost.allCases.contains(where: { "\($0)" == upTo }) {
            throw ValidationError(
                "--up-to is \"\(printable(upTo))\"; allowed are \(RebuildCost.allCases.map { "\($0)" }.joined(separator: ", "))."
            )
        }
    }

    func run() throws {
        var request = AdminRequest(.purge)
        (request.bytes, request.name, request.group, request.tag, request.upTo) = (bytes?.bytes, name, group, tag, upTo)
        if all { request.all = true }
        try admin.ask(request) { $0.report.map { AdminText.purge($0) } ?? "" }
    }
}

/// Brings a running service to the foreground for a request.
struct ActivateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "activate",
        abstract: "Bring a running service to the foreground, and have a request answered there.",
        discussion: "For example: plimsoll activate tenant-42, activate open --payload https://localhost/7.")

    @Argument(help: "Name of the request, passed to the service's onActivation.") var request: String
    @Option(help: "Payload of the request.") var payload: String?
    @OptionGroup var admin: AdminOptions

    func validate() throws {
        guard !request.isEmpty else { throw ValidationError("The request's name is empty.") }
    }

    func run() throws {
        var question = AdminRequest(.activate)
        (question.name, question.payload) = (request, payload)
        try admin.ask(question) {
            printable("\($0.name ?? request): answered, \($0.state ?? "in an unknown state")")
        }
    }
}
