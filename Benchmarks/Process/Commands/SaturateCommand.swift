import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollLinux

/// A process that fills its group with memory that cannot be purged, under a policy that terminates after saturation.
/// The process saves, reports the memory of each purgeable, and exits with 75.
struct SaturateCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_saturate", abstract: "Part of the tests.", shouldDisplay: false)

    @Option(help: "Bytes to leave free.") var leaving = ByteCount.mebibytes(4)
    @Option(help: "Seconds of saturation before the end.") var after = 2.0

    func run() async throws {
        let manager = ResourceManager(
            source: LinuxPressureSource(),
            policy: PressurePolicy(ladder: .standard.terminating(after: .seconds(after), grace: .seconds(20))))
        manager.register("ballast", rebuildCost: .cheap, byteCount: { 1 << 20 }) { (_: Int) in 0 }
        manager.beforeTermination("cart") { _ in Output.line("saved") }
        async let _: Void = manager.run()
        let source = LinuxPressureSource()
        var second = 0
        while let available = try source.read(at: .seconds(second)).available, available > leaving {
            Ramp(.mebibytes(1), bytesPerSecond: nil).run()
            second += 1
        }
        try await Task.sleep(for: .seconds(60))
        throw Failure.failed("the process was saturated for a minute and did not end")
    }
}
