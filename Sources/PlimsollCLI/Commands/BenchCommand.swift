import ArgumentParser
struct BenchCommand: ParsableCommand { static let configuration = CommandConfiguration(commandName: "bench", shouldDisplay: false) }
struct IdlerCommand: ParsableCommand { static let configuration = CommandConfiguration(commandName: "_idler", shouldDisplay: false) }
struct ChurnCommand: ParsableCommand { static let configuration = CommandConfiguration(commandName: "_churn", shouldDisplay: false) }
