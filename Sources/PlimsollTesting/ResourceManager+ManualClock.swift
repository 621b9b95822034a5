public import Plimsoll

extension ResourceManager {
    /// Creates a manager that uses the time of `clock` only.
    public convenience init(source: any PressureSource, policy: PressurePolicy = .standard, clock: ManualClock) {
        self.init(source: source, policy: policy, time: clock.timekeeper)
    }
}
