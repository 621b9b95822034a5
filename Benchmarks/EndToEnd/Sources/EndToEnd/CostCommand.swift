import ArgumentParser
import Comparing
import Glibc

/// Prints the cost of a picture and of a session on this machine, for the choice of a rate.
struct CostCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cost", abstract: "Print the processor time that a picture and a session take to make.")

    func run() {
        print(
            "picture \(Figures.text(milliseconds { Making.picture($0) }, 2)) ms, session \(Figures.text(milliseconds { Making.session($0) }, 2)) ms"
        )
    }

    private func milliseconds(_ make: (Int) -> [UInt8]) -> Double {
        let count = 200
        let began = processorMilliseconds
        for id in 0..<count { precondition(!make(id).isEmpty) }
        return (processorMilliseconds - began) / Double(count)
    }

    private var processorMilliseconds: Double {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return Double(time.tv_sec) * 1000 + Double(time.tv_nsec) / 1e6
    }
}
