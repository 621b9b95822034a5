import Foundation
import Plimsoll
import PlimsollDemos

/// Activity of the library's own threads so far, as counted by the kernel.
///
/// The rest of the process is left out: the runtime's pool wakes up once a second by itself, in any Swift program.
struct OwnThreads {
    /// Number of voluntary context switches: each sleep implies a wake-up.
    var switches = 0
    var processor = Duration.zero

    /// Adds up the threads named `plimsoll…`, except the process's first thread, which bears the program's name.
    init() {
        let tasks = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/task")) ?? []
        for task in tasks where task != "\(getpid())" {
            let directory = "/proc/self/task/" + task
            guard let name = ControlFile.text(directory + "/comm"), name.hasPrefix("plimsoll"),
                let status = ControlFile.text(directory + "/status")
            else { continue }
            let line = status.split(separator: "\n").first { $0.hasPrefix("voluntary_ctxt_switches:") }
            switches += line.flatMap { Int($0.split(whereSeparator: \.isWhitespace).last ?? "") } ?? 0
            processor += .nanoseconds(ControlFile.number(directory + "/schedstat") ?? 0)
        }
    }
}
