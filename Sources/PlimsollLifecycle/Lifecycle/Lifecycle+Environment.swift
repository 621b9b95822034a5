public import Plimsoll

extension Lifecycle {
    /// Changes of the environment from now on. These are the clock set, time zone, date, locale, memory limit, watched
    /// files and devices, and posted changes.
    ///
    /// A slow reader gets the net change since the last dequeue, with the number of events merged. Changes that cancel
    /// out are not delivered (C59). After a freeze, nothing is delivered before all sources have been read again. Two
    /// loops over one sequence share the changes.
    public var environmentChanges: some AsyncSequence<EnvironmentChange, Never> & Sendable { readEnvironment() }

    /// Returns `environmentChanges` as the concrete type.
    package func readEnvironment() -> EnvironmentChanges { EnvironmentChanges(reader: environment.makeReader()) }

    /// Calls `body` with each net change of one of `kinds`, or of all kinds if none is given. Calls are made on a
    /// thread of the manager, one at a time.
    ///
    /// After a freeze, new work is admitted only when `body` has returned or the budget is spent. So `body` is the
    /// place to rebuild objects that requests use. A call longer than 5 s is listed by name in `slowEnvironmentCalls`
    /// (C61).
    @discardableResult
    public func onEnvironmentChange(
        _ name: String, _ kinds: EnvironmentChange.Kind..., call body: @escaping @Sendable (EnvironmentChange) -> Void
    ) -> Registration {
        environment.add(EnvironmentObserver(name, Set(kinds), body))
    }

    /// Registers `body` to see each net change before any handler. `body` may pass the change on, replace it, or drop
    /// it by returning `nil` (C62).
    ///
    /// Interceptors run in the order of registration, on a thread of the manager, one change at a time. An interceptor
    /// that keeps a change longer than 5 s is skipped and reported by name.
    @discardableResult
    public func interceptEnvironmentChanges(
        _ name: String = "interceptor", _ body: @escaping @Sendable (EnvironmentChange) -> EnvironmentChange?
    ) -> Registration {
        environment.add(EnvironmentInterceptor(name, body))
    }

    /// Posts a change that no source reports (C58), such as revoked credentials or a notice from the cloud provider.
    ///
    /// A change with a value `to` is compared with the value last posted of the same kind, and is dropped if both are
    /// equal. A change without values only reports that an event happened; such changes do not cancel out. Never
    /// blocks, and calls no user code on this thread.
    public func post(_ change: EnvironmentChange) { environment.post(change) }

    /// Posts a change of `kind`, to `value` if there is one.
    public func post(_ kind: EnvironmentChange.Kind, _ value: EnvironmentValue? = nil) {
        environment.post(EnvironmentChange(kind, to: value))
    }

    /// Watches the file at `path`, and the links and directories on the way there (C66). The file need not exist.
    /// Detects rewriting, replacement by renaming or by exchanging a link (as ConfigMaps do), removal and re-creation.
    ///
    /// The change is `.file(path)`. A change is delivered if the content differs once no write has come for `quiet`.
    /// The reading happens at the latest ten times `quiet` after the first event.
    ///
    /// - Precondition: `path` is absolute.
    @discardableResult
    public func watch(file path: String, quiet: Duration = .milliseconds(100)) -> Registration {
        precondition(path.hasPrefix("/"), "watch(file: \"\(path)\") needs an absolute path")
        return environment.add(.file(path), quiet: quiet)
    }

    /// Watches the devices of `subsystem`, named as in `/sys/class` or `/sys/bus`: `"net"`, `"usb"`, `"block"` (C70).
    /// The change is `.device(subsystem)`; for `"power_supply"` the change is `.power` (C71).
    @discardableResult
    public func watch(devices subsystem: String) -> Registration {
        environment.add(subsystem == "power_supply" ? .power : .device(subsystem), quiet: nil)
    }

    /// Sets the current locale, as a configuration or an operator requests. Needed because the environment variables of
    /// a running process can't change (C64).
    public func setLocale(_ locale: String) { post(.locale, .text(locale)) }

    /// The current locale: the last one set, or named by the machine's locale file; `nil` if there is none.
    public var locale: String? {
        guard case .text(let name) = environment.known(.locale) ?? environment.watch.value(of: .locale) else {
            return nil
        }
        return name
    }

    /// The current time zone, for formatting dates; `nil` if unknown. Read anew at each use unless changes are watched.
    /// The properties are those of `EnvironmentValue.timeZone`.
    public var timeZone: (name: String?, rulesHash: UInt64?, secondsFromUTC: Int)? {
        let value = environment.known(.timeZone) ?? environment.watch.value(of: .timeZone)
        guard case .timeZone(let name, let rulesHash, let secondsFromUTC) = value else { return nil }
        return (name, rulesHash, secondsFromUTC)
    }

    /// Keeps `value` up to date until the registration is cancelled (C65).
    @discardableResult
    public func register<Value>(_ value: DerivedValue<Value>) -> Registration { environment.add(value) }

    /// The last 64 handlers and interceptors of changes that took longer than 5 s, or have run for that long. `origin`
    /// is the kind of the change, or of the last one if there were several.
    public var slowEnvironmentCalls: [HandlerTiming] {
        environment.slowCalls.map {
            HandlerTiming(name: $0.name, origin: "\($0.kind)", took: $0.took, isFinished: $0.isFinished)
        }
    }
}
