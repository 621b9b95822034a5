extension Lifecycle {
    /// Changes of the environment from now on: the clock set, the time zone, the date, the locale, the memory limit, watched files and devices, and what was posted.
    ///
    /// A slow reader gets the net change since it last took one, with the number of events in it; what went back to where it was is not told (C59). On the way
    /// back from a freeze nothing is told before all sources have been read again.
    public var environmentChanges: EnvironmentChanges { EnvironmentChanges(reader: environment.makeReader()) }

    /// Calls `body` with each net change of one of `kinds`, or of all if there are none, on a thread of the manager's, one at a time.
    ///
    /// On the way back from a freeze new work is admitted only after it has returned, or has taken longer than the budget: a place to rebuild what requests use.
    /// One that takes longer than 5 s is in `slowEnvironmentCalls` with its name (C61).
    @discardableResult
    public func onEnvironmentChange(
        _ name: String, _ kinds: EnvironmentChange.Kind..., call body: @escaping @Sendable (EnvironmentChange) -> Void
    ) -> Registration {
        environment.add(EnvironmentObserver(name, Set(kinds), body))
    }

    /// Shows each net change to `body` before anybody else: it may pass it on, put another in its place, or take it away with `nil` (C62).
    ///
    /// In the order of registration, on a thread of the manager's, one change at a time. One that keeps a change longer than 5 s is gone around and named.
    @discardableResult
    public func interceptEnvironmentChanges(
        _ name: String = "interceptor", _ body: @escaping @Sendable (EnvironmentChange) -> EnvironmentChange?
    ) -> Registration {
        environment.add(EnvironmentInterceptor(name, body))
    }

    /// The mailbox for what no source tells (C58): credentials revoked, a notice of the cloud's, whatever else.
    ///
    /// A change with a value `to` is told against the value last posted of its kind, and not at all if that is the same; one without values tells that
    /// something happened, and does not cancel out. Never blocks, and calls nobody on this thread.
    public func post(_ change: EnvironmentChange) { environment.post(change) }

    /// Posts that `kind` changed, to `value` if there is one.
    public func post(_ kind: EnvironmentChange.Kind, _ value: EnvironmentValue? = nil) { environment.post(EnvironmentChange(kind, to: value)) }

    /// Watches the file at `path`, and the links and directories on the way to it: rewritten, put in place by renaming or by exchanging a link
    /// (as ConfigMaps are), removed, made again (C66). It need not exist.
    ///
    /// The change is `.file(path)`. It is told if the content is different once nobody has written for `quiet`, at the latest ten times that after the first event.
    ///
    /// - Precondition: `path` is absolute.
    @discardableResult
    public func watch(file path: String, quiet: Duration = .milliseconds(100)) -> Registration {
        precondition(path.hasPrefix("/"), "watch(file: \"\(path)\") needs an absolute path")
        return environment.add(.file(path), quiet: quiet)
    }

    /// Watches the devices of `subsystem`, as `/sys/class` or `/sys/bus` names it: `"net"`, `"usb"`, `"block"` (C70). The change is `.device(subsystem)`; for `"power_supply"` it
    /// is `.power` (C71).
    @discardableResult
    public func watch(devices subsystem: String) -> Registration {
        environment.add(subsystem == "power_supply" ? .power : .device(subsystem), quiet: nil)
    }

    /// Makes `locale` the one in force, as a configuration or an operator says: the variables of a process that runs can't change (C64).
    public func setLocale(_ locale: String) { post(.locale, .text(locale)) }

    /// The locale in force: the last that was set or that the machine's file of it named; `nil` if there is none.
    public var locale: String? {
        guard case .text(let name) = environment.known(.locale) ?? environment.watch.value(of: .locale) else { return nil }
        return name
    }

    /// The time zone in force, for whatever formats dates; `nil` if it can't be told. Read anew at each use unless somebody is told of its changes.
    public var timeZone: TimeZoneVersion? {
        guard case .timeZone(let zone) = environment.known(.timeZone) ?? environment.watch.value(of: .timeZone) else { return nil }
        return zone
    }

    /// Keeps `value` up to date until the registration is cancelled (C65).
    @discardableResult
    public func register<Value>(_ value: DerivedValue<Value>) -> Registration { environment.add(value) }

    /// Handlers and interceptors of changes that took longer than 5 s, or have been at it for so long; the last 64.
    public var slowEnvironmentCalls: [EnvironmentCall] { environment.slowCalls }
}
