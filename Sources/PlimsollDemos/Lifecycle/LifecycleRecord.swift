import Plimsoll
import PlimsollLifecycle

/// Observations of the service, on the demo's clock: narrative, verdict and chart use the same facts. A value type.
struct LifecycleRecord {
    /// Actions of the demo, in this order.
    enum Step: String, CaseIterable {
        case launch, interrupt, resume, task, background, stop, go, foreground, freeze, thaw, terminate, end, relaunch,
            over
    }

    struct Seen {
        /// Number of the launch, from 1.
        var run: Int
        var at: Duration
        var event: LifecycleEvent
    }

    struct Suspension {
        var from: Duration
        var to: Duration
        var isFreezer: Bool
    }

    /// Outcome of one request to the service.
    enum Outcome: String, CaseIterable {
        case answered
        /// Told to retry later.
        case refused
        /// No socket listened.
        case closed
        /// No answer in time.
        case silent
    }

    struct Request {
        var at: Duration
        var outcome: Outcome
    }

    struct Band {
        var state: LifecycleState
        var from: Duration
        var to: Duration
    }

    /// Time at which each step was begun.
    var steps: [Step: Duration] = [:]
    var seen: [Seen] = []
    var suspensions: [Suspension] = []
    var requests: [Request] = []
    /// Exit status and time of each run.
    var endings: [(at: Duration, status: Int32)] = []
    /// Number of changes to the file while the process was stopped.
    var fileChanges = 0
    /// Reason why the freezer was left out; `nil` if the freezer was used.
    var freezerRefusal: String?

    // MARK: Queries

    /// Returns the events of a kind, in order, of one run or all, at or after `step`, before `end`.
    func events(_ kind: LifecycleEvent.Kind, run: Int? = nil, from step: Step? = nil, to end: Step? = nil) -> [Seen] {
        let from = step.map { steps[$0] ?? .seconds(Int64.max / 2_000_000_000) }, to = end.flatMap { steps[$0] }
        return seen.filter { seen in
            seen.event.kind == kind && run.map { $0 == seen.run } ?? true && from.map { $0 <= seen.at } ?? true
                && to.map { seen.at < $0 } ?? true
        }
    }

    /// Returns the states that a unit entered between two steps.
    func path(from step: Step, to end: Step? = nil, of unit: String = LifecycleEvent.process) -> [LifecycleState] {
        events(.transition, from: step, to: end).filter { $0.event.unit == unit }.compactMap(\.event.state)
    }

    /// Returns the outcomes of requests made between two steps.
    func outcomes(from step: Step, to end: Step) -> [Outcome] {
        guard let from = steps[step], let to = steps[end] else { return [] }
        return requests.filter { $0.at >= from && $0.at < to }.map(\.outcome)
    }

    /// Length of the demo.
    var length: Duration { max(steps[.over] ?? .zero, seen.last?.at ?? .zero) }

    /// Process and scenes, in the order of coming up.
    var units: [String] {
        var units = [LifecycleEvent.process]
        for seen in events(.transition) { if let unit = seen.event.unit, !units.contains(unit) { units.append(unit) } }
        return units
    }

    /// Returns the states of a unit with their times, without gaps from the launch on.
    func bands(of unit: String) -> [Band] {
        var changes: [(at: Duration, state: LifecycleState)] = []
        for seen in events(.transition) where seen.event.unit == unit {
            if let state = seen.event.state { changes.append((seen.at, state)) }
        }
        // A scene ends with the process at the latest.
        for ending in endings { changes.append((ending.at, .notRunning)) }
        changes.sort { $0.at < $1.at }
        var bands: [Band] = []
        var last = (at: Duration.zero, state: LifecycleState.notRunning)
        for change in changes + [(length, .notRunning)] {
            if change.at > last.at { bands.append(Band(state: last.state, from: last.at, to: change.at)) }
            last = change
        }
        return bands
    }

    /// Returns the state of the process at a time.
    func state(at time: Duration) -> LifecycleState {
        let last = seen.last {
            $0.at <= time && $0.event.kind == .transition && $0.event.unit == LifecycleEvent.process
        }
        // The process has ended since: the last transition was another launch's.
        if let last, endings.count >= last.run, endings[last.run - 1].at <= time { return .notRunning }
        return last?.event.state ?? .notRunning
    }

    /// Returns the spans from an event of one kind to the next of the other, in which a resource was held.
    func spans(from begin: LifecycleEvent.Kind, to end: LifecycleEvent.Kind) -> [(from: Duration, to: Duration)] {
        var spans: [(from: Duration, to: Duration)] = [], began: (at: Duration, run: Int)?
        func close(at: Duration) {
            if let span = began { spans.append((span.at, at)) }
            began = nil
        }
        for seen in seen where seen.event.kind == begin || seen.event.kind == end {
            if let span = began, span.run != seen.run {
                close(at: endings.count >= span.run ? endings[span.run - 1].at : seen.at)
            }
            if seen.event.kind == begin {
                if began == nil { began = (seen.at, seen.run) }
            } else {
                close(at: seen.at)
            }
        }
        if let span = began { close(at: endings.count >= span.run ? endings[span.run - 1].at : length) }
        return spans
    }
}
