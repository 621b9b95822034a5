public import Plimsoll

extension ResourceManager {
    /// A manager for which time passes by `clock` only.
    public convenience init(source: any PressureSource, policy: PressurePolicy = .standard, clock: ManualClock) {
        self.init(source: source, policy: policy, time: clock.timekeeper)
    }
}
