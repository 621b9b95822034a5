package import Plimsoll
import PlimsollLinux

extension SteadyClock {
    /// The same time for a manager.
    package static var timekeeper: Timekeeper { .machine }
}
