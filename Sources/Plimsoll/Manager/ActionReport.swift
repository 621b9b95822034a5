/// What one action promised, and what it brought by measurement.
public struct ActionReport: Sendable, Hashable {
    /// The event it belongs to.
    public var eventID: UInt64
    /// What was to be done.
    public var action: PressureAction
    /// Level in force when it began.
    public var level: PressureLevel
    /// Who wanted it.
    public var origin = Origin.pressure
    /// Why.
    public var evidence: PressureEvidence
    /// When it began, on the manager's clock.
    public var began: Duration
    /// How long it took.
    public var took: Duration = .zero
    /// Bytes that were asked for.
    public var asked: ByteCount = .zero
    /// Bytes that holders said they let go of, volatile ones apart: what they could be counted on for, as the kernel can't take it by itself.
    public var released: ByteCount = .zero
    /// Bytes of volatile memory that holders said they gave back: the kernel could have taken these as well, so they counted as available before.
    public var releasedVolatile: ByteCount = .zero
    /// Bytes of volatile memory that the kernel was found to have taken.
    public var taken: ByteCount = .zero
    /// Time of it in which other threads' allocations may have had to wait for the heap's free pages to be given back: glibc's `malloc_trim`.
    /// Zero with jemalloc, which lets them go on.
    public var trim: Duration = .zero
    /// Footprint before it.
    public var before = Footprint()
    /// Footprint after volatile memory was given back and before others were asked; `nil` if none was.
    public var between: Footprint?
    /// Footprint after it, the heap having given free pages back if that was worth it.
    public var after = Footprint()
    /// What came of it.
    public var outcome: Outcome = .done
    /// Whether everything was only decided and reported at that time.
    public var isDryRun = false

    /// Measured fall of this process's resident memory; negative if it grew meanwhile.
    public var residentFall: ByteCount { before.resident - after.resident }
    /// Measured fall of the group's usage; negative if it grew meanwhile.
    public var usageFall: ByteCount { before.usage - after.usage }
    /// The greater fall that followed from what was `released`, and from trimming.
    var heapFall: ByteCount { max((between ?? before).resident - after.resident, (between ?? before).usage - after.usage) }
    /// Whether it belongs to a simulation.
    public var isSimulated: Bool { evidence.contains(.simulated) }

    /// Who wanted an action.
    public enum Origin: String, Sendable, Hashable {
        /// The policy, for want of memory.
        case pressure
        /// The life cycle, on the way to the background.
        case background
        /// A person, or a program on a person's behalf.
        case `operator`
    }

    /// What came of an action.
    public enum Outcome: Sendable, Hashable {
        /// Carried out.
        case done
        /// Would have been carried out.
        case dryRun
        /// Not carried out, for that reason.
        case refused(String)
        /// Carried out except for these, which took longer than they may.
        case overran([String])
    }
}

extension ActionReport: CustomStringConvertible {
    public var description: String {
        var text = "\(level) (\(origin == .pressure ? evidence.description : origin.rawValue)): \(action)"
        if taken > .zero { text += ", the kernel took \(taken) of volatile memory" }
        if asked > .zero || released > .zero || releasedVolatile > .zero {
            text += ", asked \(asked), released \(released)"
            if releasedVolatile > .zero { text += " and \(releasedVolatile) volatile" }
            text += ", resident fell \(residentFall)"
        }
        text += ", \(took.inSeconds * 1000) ms"
        switch outcome {
        case .done: return text
        case .dryRun: return text + ", dry run"
        case .refused(let reason): return text + ", refused: \(reason)"
        case .overran(let names): return text + ", overran: \(names.joined(separator: ", "))"
        }
    }
}
