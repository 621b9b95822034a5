import CJemalloc
import CPlimsollMemory
import Plimsoll

/// jemalloc as the allocator of the whole process.
///
/// Depending on this product links `libjemalloc.so` (Debian and Ubuntu: `libjemalloc-dev`; where it is absent, linking the program ends with
/// "cannot find -ljemalloc") and sets it up before `main`: a background thread that returns freed pages within a second, also while the process
/// is idle. Nothing need be called. Choose it in the application, not in a library: it decides about everybody's `malloc`.
///
/// What the operator named in `MALLOC_CONF` stays as it is. A forked child, which has no background thread, starts one when it next gives memory back.
public enum Jemalloc {
    /// Sets it up again, with other times.
    ///
    /// The default was measured to cost nothing: 10.3 million operations a second as with jemalloc's own 10 s, and 296 MiB instead of 796 left six seconds
    /// after a peak; at once (zero) takes a third off the speed.
    ///
    /// - Parameter decay: time until freed pages are returned, from zero to a day, in whole milliseconds.
    /// - Throws: `JemallocError` if jemalloc does not serve the whole process, or refuses.
    public static func setUp(decay: Duration = .seconds(1)) throws(JemallocError) {
        guard (.zero ... .seconds(86400)).contains(decay) else {
            throw JemallocError("a decay time of \(decay) was asked for; allowed is zero to a day")
        }
        let milliseconds = Int(decay / .milliseconds(1))
        switch plimsoll_jemalloc_tune(milliseconds) {
        case 0: return
        case _ where !(HeapAllocator.current.kind == .jemalloc && HeapAllocator.current.ownership == .owned):
            throw JemallocError("jemalloc cannot be set up: \(HeapAllocator.current.signal.detail)")
        case let failure: throw JemallocError("jemalloc refused a setting with error \(failure)")
        }
    }

    /// The settings in force; `nil` where jemalloc does not answer.
    public static var settings: Settings? {
        var hasThread = false, milliseconds = 0
        // The one name used from the library itself: it keeps the linker from leaving the library out.
        guard mallctl("epoch", nil, nil, nil, 0) == 0, plimsoll_jemalloc_settings(&hasThread, &milliseconds) else { return nil }
        return Settings(hasBackgroundThread: hasThread, decay: .milliseconds(milliseconds))
    }

    /// How free pages are returned.
    public struct Settings: Sendable, Hashable {
        /// Whether a thread returns them while the process does not allocate.
        public var hasBackgroundThread: Bool
        /// How long freed pages are kept; negative for ever.
        public var decay: Duration
    }
}

/// What was asked of jemalloc, and why it was not done.
public struct JemallocError: Error, Sendable, Hashable, CustomStringConvertible {
    /// One sentence.
    public let description: String

    init(_ description: String) { self.description = description }
}
