import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite struct LifecycleMachineTests {
    @Test func `C1 exactly the steps of the life cycle are legal`() {
        let legal: Set<[LifecycleState]> = [
            [.notRunning, .inactive], [.notRunning, .background], [.inactive, .active], [.active, .inactive], [.inactive, .background],
            [.background, .inactive], [.background, .suspended], [.suspended, .background], [.inactive, .notRunning],
            [.background, .notRunning], [.suspended, .notRunning],
        ]
        for from in LifecycleState.allCases {
            for to in LifecycleState.allCases { #expect(LifecycleMachine.isLegal(from, to) == legal.contains([from, to]), "\(from) \(to)") }
        }
    }

    @Test func `C1 an illegal step is refused and changes nothing`() throws {
        var machine = LifecycleMachine()
        _ = try machine.take(.inactive, cause: .launch, at: .zero)
        let before = machine
        #expect(throws: LifecycleError.self) { try machine.take(.suspended, cause: .operator, at: .zero) }
        #expect(machine == before)
        do { _ = try machine.take(.suspended, cause: .operator, at: .zero) } catch {
            #expect(error.description.contains("from inactive to suspended (operator)"))
        }
    }

    @Test func `C1 C5 every state is reached from every other by legal steps, the shortest way`() {
        for from in LifecycleState.allCases {
            for target in LifecycleState.allCases {
                var state = from, steps = 0
                while let next = LifecycleMachine.step(from: state, toward: target) {
                    #expect(LifecycleMachine.isLegal(state, next))
                    state = next
                    steps += 1
                    if steps > 4 { break }
                }
                #expect(state == target, "from \(from) to \(target)")
            }
        }
        #expect(LifecycleMachine.step(from: .active, toward: .background) == .inactive)
        #expect(LifecycleMachine.step(from: .suspended, toward: .active) == .background)
    }

    @Test func `C10 a transition is a value with from, to, cause and sequence`() throws {
        var machine = LifecycleMachine()
        _ = try machine.take(.inactive, cause: .launch, at: .zero)
        let step = try machine.take(.active, cause: .operator, at: .seconds(1))
        #expect(step == LifecycleTransition(from: .inactive, to: .active, cause: .operator, sequence: 2, at: .seconds(1)))
        #expect(step.description == "2: inactive → active (operator)")
    }

    @Test func `C94 C98 the process takes the state of the greatest of the scenes and holds, below the ceiling`() {
        var desired = DesiredState()
        #expect(desired.process == .active)
        desired.hasHadScenes = true
        #expect(desired.process == .background)
        desired.claims[1] = .init(state: .background, isScene: true)
        desired.claims[2] = .init(state: .active, isScene: true)
        #expect(desired.process == .active)
        desired.interruptions = 1
        #expect(desired.process == .inactive && desired.scene(.active) == .inactive && desired.scene(.background) == .background)
        desired.isInBackground = true
        #expect(desired.process == .background && desired.scene(.active) == .background)
        desired.isTerminating = true
        #expect(desired.process == .notRunning && desired.scene(.background) == .notRunning)
    }

    @Test func `C94 the process stays at a scene that is still on the way down, and does not rise for that scene`() {
        var desired = DesiredState()
        desired.hasHadScenes = true
        desired.claims[1] = .init(state: .background, footing: .inactive, isScene: true)
        #expect(desired.process == .background && desired.upheld(at: .active) == .inactive)
        #expect(desired.upheld(at: .inactive) == .inactive && desired.upheld(at: .background) == .background)
        desired.claims[1]?.footing = .background
        #expect(desired.upheld(at: .active) == .background)
    }
}
