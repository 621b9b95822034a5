/// The expected and measured effect of one action.
public struct ActionReport: Sendable, Hashable {
    /// Identifier of the event that led to the action.
    public var eventID: UInt64
    /// The action.
    public var action: PressureAction
    /// Level in force when the action began.
    public var level: PressureLevel
    /// The initiator of the action.
    package var origin = Origin.pressure
    /// Evidence behind the level.
    public var evidence: PressureEvidence
    /// Time at which the action began, on the manager's clock.
    public var began: Duration
    /// Duration of the action.
    public var took: Duration = .zero
    /// Bytes requested from purgeables.
    public var asked: ByteCount = .zero
    /// Bytes that purgeables report as released, without volatile memory. The kernel cannot reclaim these bytes by
    /// itself.
    public var released: ByteCount = .zero
    /// Bytes of volatile memory that purgeables report as released. The kernel could have reclaimed these bytes
    /// too, so they counted as available before.
    public var releasedVolatile: ByteCount = .zero
    /// Bytes of volatile memory found to be reclaimed by the kernel.
    public var taken: ByteCount = .zero
    /// Name of the request that was cancelled; `nil` for other actions.
    public var cancelledRequest: String?
    /// Bytes that the cancelled request held.
    public var cancelledBytes: ByteCount = .zero
    /// Time in which allocations of other threads may have waited while glibc's `malloc_trim` gave the heap's free
    /// pages back. Zero with jemalloc, which does not block other threads.
    public var trim: Duration = .zero
    /// Footprint before the action.
    public var before = Footprint()
    /// Footprint after volatile memory was released and before other purgeables were asked; `nil` if no volatile
    /// memory was released.
    public var between: Footprint?
    /// Footprint after the action, and after the heap gave free pages back if that was worthwhile.
    public var after = Footprint()
    /// Outcome of the action.
    package var outcome: Outcome = .done
    /// True if the manager was in dry-run mode: actions were only decided and reported.
    public var isDryRun = false

    /// Measured fall of this process's resident memory; negative if resident memory grew meanwhile.
    public var residentFall: ByteCount { before.resident - after.resident }
    /// Measured fall of the group's usage; negative if the usage grew meanwhile.
    public var usageFall: ByteCount { before.usage - after.usage }
    /// The greater of both falls that followed from the `released` bytes and from trimming the heap.
    var heapFall: ByteCount {
        max((between ?? before).resident - after.resident, (between ?? before).usage - after.usage)
    }
    /// The reason why the action was not carried out; `nil` if it was, or would have been but for a dry run.
    public var refusal: String? { if case .refused(let reason) = outcome { reason } else { nil } }
    /// Names of the handlers that exceeded their time limit.
    public var overran: [String] { if case .overran(let names) = outcome { names } else { [] } }
    /// True if the action belongs to a simulation.
    public var isSimulated: Bool { evidence.contains(.simulated) }

    /// The initiator of an action.
    package enum Origin: String, Sendable, Hashable {
        /// The policy, because memory is short.
        case pressure
        /// The life cycle, on the way to the background.
        case background
        /// A person, or a program that acts for a person.
        case `operator`
    }

    /// The outcome of an action.
    package enum Outcome: Sendable, Hashable {
        /// The action was carried out.
        case done
        /// Dry run: the action would have been carried out.
        case dryRun
        /// The action was not carried out, for the given reason.
        case refused(String)
        /// The action was carried out, except for the named handlers, which exceeded their time limit.
        case overran([String])
    }
}

extension ActionReport: CustomStringConvertible {
    public var description: String {
        var text = "\(level) (\(origin == .pressure ? evidence.description : origin.rawValue)): \(action)"
        if taken > .zero { text += ", the kernel reclaimed \(taken) of volatile memory" }
        if asked > .zero || released > .zero || releasedVolatile > .zero {
            text += ", asked \(asked), released \(released)"
            if releasedVolatile > .zero { text += " and \(releasedVolatile) volatile" }
            text += ", resident fell \(residentFall)"
        }
        if let cancelledRequest { text += ", \(cancelledRequest) held \(cancelledBytes)" }
        text += ", \(took.inSeconds * 1000) ms"
        switch outcome {
        case .done: return text
        case .dryRun: return text + ", dry run"
        case .refused(let reason): return text + ", refused: \(reason)"
        case .overran(let names): return text + ", overran: \(names.joined(separator: ", "))"
        }
    }
}
