import CSimulatedThreads
import Glibc
import Plimsoll

// Runs one fleet for a while: `plimsoll-sim [--hours HOURS] [--units COUNT] [--seed SEED] [--trace]`.
// Prints figures. Ends with status 1 at the first violation of an invariant, and names the seed.

var hours = 24.0, units = 8
var arguments = CommandLine.arguments.dropFirst()
while let option = arguments.popFirst() {
    if option == "--trace" {
        Invariants.isTraced = true
        continue
    }
    guard let value = arguments.popFirst() else { fail("\(option) needs a value") }
    switch option {
    case "--hours": hours = number(option, value)
    case "--units": units = Int(number(option, value))
    case "--seed": Invariants.seed = UInt64(value) ?? { fail("--seed is a number, not \"\(value)\"") }()
    default: fail("unknown option \(option); allowed are --hours, --units, --seed and --trace")
    }
}
guard simulated_is_linked() else { fail("linked without the simulated threads; build with `make sim`") }

func fail(_ reason: String) -> Never {
    let line = Array("plimsoll-sim: \(reason)\n".utf8)
    write(STDERR_FILENO, line, line.count)
    exit(64)
}

func number(_ option: String, _ value: String) -> Double {
    guard let number = Double(value), number > 0 else { fail("\(option) is a number above 0, not \"\(value)\"") }
    return number
}

SimulatedThreads.begin(seed: Invariants.seed)
let fleet = SimulatedFleet(units: units)
fleet.run(for: .seconds(hours * 3600))

func figure(_ name: String, _ value: some CustomStringConvertible, _ unit: String) {
    print("figure sim.\(name) \(value) \(unit)")
}
figure("unit-hours", hours * Double(units), "h")
figure("switches", simulated_switches(), "count")
figure("starts", Counts.starts, "count")
figure("freezes", Counts.freezes, "count")
figure("asked-to-end", Counts.unitsAsked, "count")
figure("kills", Counts.kills, "count")
figure("kills-while-suspended", Counts.killsWhileSuspended, "count")
figure("kills-by-kernel", Counts.killsByKernel, "count")
figure("tokens", Counts.tokens, "count")
figure("expirations", Counts.expirations, "count")
figure("warnings", Counts.warnings, "count")
figure("steps", Counts.steps, "count")
figure("saves", Counts.saves, "count")
print("checksum \(simulated_checksum())")
fflush(nil)
_exit(0)
