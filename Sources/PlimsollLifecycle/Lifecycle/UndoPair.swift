import Plimsoll
import Synchronization

/// An action and its inverse. The two never run concurrently, and the inverse runs only if the action was done (C6,
/// T38).
///
/// An action that outlasts its deadline is undone when it returns, if undoing is wanted by then.
final class UndoPair: Sendable {
    typealias Step = @Sendable (LifecycleContext) async throws -> Void

    private struct State {
        var isDone: Bool
        var isWanted: Bool
        var isBusy = false
        var context: LifecycleContext?
        /// The number of the latest step. A late call in reverse order may come after the call of a later step.
        var sequence: UInt64 = 0
    }

    private let action: Step?
    private let inverse: Step?
    private let state: Mutex<State>

    init(_ action: Step?, _ inverse: Step?, isDone: Bool) {
        self.action = action
        self.inverse = inverse
        state = Mutex(State(isDone: isDone, isWanted: isDone))
    }

    var isEmpty: Bool { action == nil && inverse == nil }

    /// Sets the done state without a call: there was nothing to undo in the first place.
    func assume(isDone: Bool) { state.withLock { if !$0.isBusy { ($0.isDone, $0.isWanted) = (isDone, isDone) } } }

    /// Runs the action or the inverse. Ends at once if another task is running the pair; that task then performs the
    /// latest request. Does nothing if a later step has called the pair before.
    ///
    /// - Throws: The error of the step; of several steps, the last error. An action that throws counts as not done, an
    ///   inverse that throws as undone. `LifecycleError` if the action is left to another task: a caller must not count
    ///   on an action that is not done.
    func move(to isWanted: Bool, _ context: LifecycleContext) async throws {
        let (goes, isLate) = state.withLock { state in
            guard context.sequence >= state.sequence else { return (false, false) }
            state.sequence = context.sequence
            state.isWanted = isWanted
            state.context = context
            let goes = !state.isBusy && state.isDone != isWanted, isLate = state.isBusy && isWanted
            if goes { state.isBusy = true }
            return (goes, isLate)
        }
        if isLate {
            throw LifecycleError(
                "cannot wait for the handler because a call of an earlier step has not returned; return by the deadline"
            )
        }
        guard goes else { return }
        var (isDoing, context) = (isWanted, context)
        var failure: (any Error)?
        while true {
            var hasThrown = false
            do { try await (isDoing ? action : inverse)?(context) } catch {
                (failure, hasThrown) = (error, true)
            }
            let next: LifecycleContext? = state.withLock { state in
                if isDoing, hasThrown { state.isWanted = false }
                state.isDone = isDoing && !hasThrown
                guard state.isDone != state.isWanted, let latest = state.context else {
                    state.isBusy = false
                    state.context = nil
                    return nil
                }
                isDoing = state.isWanted
                return latest
            }
            guard let next else { break }
            context = next
        }
        if let failure { throw failure }
    }
}
