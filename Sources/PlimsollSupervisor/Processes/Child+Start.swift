import CPlimsollSupervisor
import Glibc
import Synchronization

extension Child {
    /// Starts a program in `group` before the first instruction, in a new session.
    ///
    /// Uses `clone3` into the version 2 group (Linux 5.7) if that group was never killed. Otherwise, and for version
    /// 1 groups, the child enters the group by itself before it becomes the program.
    ///
    /// - Parameter limit: greatest time until the child becomes the program. Another process may freeze the group in
    ///   the meantime.
    package static func start(_ launch: Launch, in group: UnitGroup? = nil, within limit: Duration = .seconds(10))
        throws(ChildError) -> Child
    {
        guard let path = launch.command.first, !path.isEmpty else {
            throw ChildError(.start("nothing"), EINVAL, "a command needs a path")
        }
        let act = ChildError.Act.start(path)
        for text in launch.command + launch.environment.flatMap({ [$0.key, $0.value] }) + [launch.directory ?? ""]
        where text.utf8.contains(0) {
            throw ChildError(act, EINVAL, "a zero byte in its arguments, variables or directory")
        }
        let directories = group?.directories ?? []
        do { try group?.check(for: .enter) } catch { throw ChildError(act, ESTALE, "\(error)") }
        if let group, group.isFrozen, !group.isEmpty {
            throw ChildError(act, EBUSY, "\(group.path) is frozen: thaw the group first")
        }

        var entries: [Int32] = []
        var entered: [GroupDirectory] = []
        defer { for file in entries { close(file) } }
        for directory in directories where directory.hierarchy != .unified {
            entries.append(directory.open("cgroup.procs", O_WRONLY))
            entered.append(directory)
        }
        let unified = directories.first { $0.hierarchy == .unified }
        let isEntered = group?.isEntered.load(ordering: .relaxed) ?? false
        let unifiedEntry = unified?.open("cgroup.procs", O_WRONLY) ?? -1
        defer { if unifiedEntry >= 0 { close(unifiedEntry) } }
        // A child that does not enter the group might run outside: not frozen, not killed and not counted with the
        // unit.
        if let unified, unifiedEntry < 0 {
            let number = errno
            throw ChildError(act, number, "cannot open \(unified.path)/cgroup.procs")
        }

        var all = launch.environment
        if !launch.kept.isEmpty {
            all["LISTEN_FDS"] = "\(launch.kept.count)"
            all["LISTEN_FDNAMES"] = launch.kept.map(\.name).joined(separator: ":")
            // Placeholder for the pid, which the child writes itself.
            all["LISTEN_PID"] = String(repeating: "0", count: 10)
        }
        let variables = all.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
        let number = launch.kept.isEmpty ? nil : variables.firstIndex { $0.hasPrefix("LISTEN_PID=") }
        let kept = launch.kept.map(\.file)
        var pid: pid_t = 0
        var (file, step, entry): (Int32, Int32, Int32) = (-1, 0, 0)
        let result: Int32 = withCStrings(launch.command) { arguments in
            withCStrings(variables) { environment in
                withCString(launch.directory) { directory in
                    "\(launch.oomScoreAdjust)".withCString { adjust in
                        var request = plimsoll_launch()
                        request.path = UnsafePointer(arguments[0])
                        request.arguments = UnsafePointer(arguments)
                        request.environment = UnsafePointer(environment)
                        request.directory = directory
                        request.output = launch.output ?? -1
                        request.errors = launch.errors ?? -1
                        request.group = isEntered ? -1 : unified?.descriptor ?? -1
                        request.group_entry = unifiedEntry
                        request.entry_count = Int32(entries.count)
                        request.oom_score_adj = adjust
                        request.limit = Int32(clamping: Int64(limit / .milliseconds(1)))
                        request.own_number = number.flatMap { environment[$0] }.map { $0 + "LISTEN_PID=".utf8.count }
                        request.kept_count = Int32(kept.count)
                        return entries.withUnsafeBufferPointer { entries in
                            kept.withUnsafeBufferPointer { kept in
                                (request.entries, request.kept) = (entries.baseAddress, kept.baseAddress)
                                return known.withLock { known in
                                    let result = plimsoll_start(&request, &pid, &file, &step, &entry)
                                    if result == 0 { known.insert(pid) }
                                    return result
                                }
                            }
                        }
                    }
                }
            }
        }
        guard result == 0 else {
            if file >= 0 { reapLater(file) }
            let place = entered.indices.contains(Int(entry)) ? entered[Int(entry)].path : unified?.path
            throw ChildError(act, -result, detail(step, of: launch, group: place))
        }
        group?.note(pid)
        return Child(pid: pid, descriptor: file, isAdopted: false, started: ProcessTable.stat(of: pid)?.started)
    }

    /// Describes the step that failed.
    private static func detail(_ step: Int32, of launch: Launch, group: String?) -> String? {
        switch plimsoll_step(UInt32(step)) {
        case PLIMSOLL_FORK: "cannot fork"
        case PLIMSOLL_ENTER: "the process could not enter \(group ?? "its group")"
        case PLIMSOLL_OUTPUT: "the standard descriptors could not be set"
        case PLIMSOLL_DIRECTORY: launch.directory
        case PLIMSOLL_STUCK: "the program was not executed in time; check whether the group is frozen"
        default: nil
        }
    }
}

/// Calls `body` with copies of `texts`, terminated by a null pointer.
private func withCStrings<Result>(
    _ texts: [String], _ body: (UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>) -> Result
) -> Result {
    var copies: [UnsafeMutablePointer<CChar>?] = texts.map { strdup($0) }
    copies.append(nil)
    defer { for copy in copies { free(copy) } }
    return copies.withUnsafeMutableBufferPointer { body($0.baseAddress!) }
}

private func withCString<Result>(_ text: String?, _ body: (UnsafePointer<CChar>?) -> Result) -> Result {
    guard let text else { return body(nil) }
    return text.withCString(body)
}
