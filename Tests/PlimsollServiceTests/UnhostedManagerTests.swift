import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollService

/// A program that links this product may still run a manager that nothing surrounds.
@Suite struct UnhostedManagerTests {
    @Test func `a manager that is not to be hosted runs bare, although this product is linked`() async throws {
        let source = ScriptedPressureSource(), manager = ResourceManager(source: source, isHosted: false)
        #expect(manager.host == nil)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await manager.run() }
            source.push(usage: .mebibytes(1020), limit: .gibibytes(1))
            await until("the first look") { manager.level == .critical }
            #expect(manager.host == nil)
            group.cancelAll()
            try await group.waitForAll()
        }
    }

    @Test func `a manager made without a word is hosted, as before`() {
        let plain = ResourceManager(source: ScriptedPressureSource()),
            asked = ResourceManager(source: ScriptedPressureSource(), isHosted: true)
        #expect(plain.host is ServiceHost && asked.host is ServiceHost)
        #expect(plain.serviceSettings.adminSocket == .automatic)
    }

    @Test func `settings for a manager that is not hosted end the process, and say why`() async {
        await #expect(processExitsWith: .failure) {
            _ = ResourceManager(source: ScriptedPressureSource(), isHosted: false).serviceSettings
        }
    }
}
