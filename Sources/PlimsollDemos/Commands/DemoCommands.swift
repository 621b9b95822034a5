package import ArgumentParser

/// The commands of this module. A demo, a stress run or a benchmark starts processes of its own program, so each
/// program that offers one of them offers `supervise` and `parts` as well.
package enum DemoCommands {
    package static var demo: any ParsableCommand.Type { DemoCommand.self }
    package static var stress: any ParsableCommand.Type { StressCommand.self }
    package static var supervise: any ParsableCommand.Type { SuperviseCommand.self }

    /// Hidden commands, each a separate process of a demo, a stress run or a benchmark.
    package static var parts: [any ParsableCommand.Type] {
        [
            EnterCommand.self, ServiceCommand.self, LifecycleServiceCommand.self, SubjectCommand.self,
            UnitCommand.self,
        ]
    }
}
