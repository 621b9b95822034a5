import Foundation
import Plimsoll
import PlimsollLinux
import PlimsollTesting
import TestSupport
import Testing

/// `plimsoll autopsy` as a program.
@Suite(.timeLimit(.minutes(5))) struct AutopsyTests {
    private let folder = FileManager.default.temporaryDirectory.path + "/plimsoll-autopsy-\(UUID().uuidString)"

    private func plimsoll(_ arguments: String...) throws -> (status: Int32, output: String, errors: String) {
        let process = Process(), output = Pipe(), errors = Pipe()
        process.executableURL = URL(fileURLWithPath: builtProgram("plimsoll"))
        (process.arguments, process.standardOutput, process.standardError) = (["autopsy"] + arguments, output, errors)
        try process.run()
        let texts = (output.fileHandleForReading.readDataToEndOfFile(), errors.fileHandleForReading.readDataToEndOfFile())
        process.waitUntilExit()
        return (process.terminationStatus, String(decoding: texts.0, as: UTF8.self), String(decoding: texts.1, as: UTF8.self))
    }

    @Test func `a running service shows the run before, and the present run on request; an ended service shows the last run`() async throws {
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let path = folder + "/plimsoll.box"
        for run in 1...2 {
            let source = ScriptedPressureSource(), manager = ResourceManager(source: source)
            try manager.keepBlackBox(at: path)
            let running = Task { try await manager.run() }
            source.push(usage: .mebibytes(run == 1 ? 100 : 1020), limit: .gibibytes(1))
            await until("the reading is recorded") {
                (try? BoxFile.read(path).contents.samples.last?.usage) == (run == 1 ? 100 : 1020) << 20
            }
            if run == 1 {
                let nothing = try plimsoll(path)
                #expect(nothing.status == 1 && nothing.errors.contains("has no run before; --running shows this one"))
            } else {
                let before = try plimsoll(path), present = try plimsoll(path, "--running")
                #expect(before.status == 0 && before.output.hasPrefix("# process \(getpid()) runs; the run before, from \(path).previous:\n"))
                #expect(before.output.contains("\nend       ended in good order\nmemory    100 MiB used of 1 GiB"))
                #expect(present.status == 0 && present.output.contains("\nend       none yet: the process runs\nmemory    1020 MiB used"))
            }
            running.cancel()
            try await running.value
        }
        let ended = try plimsoll(path)
        #expect(ended.status == 0 && ended.output.contains("\nend       ended in good order\nmemory    1020 MiB used of 1 GiB, 4 MiB available"))
    }

    @Test func `a file that cannot be read is refused with the reason`() throws {
        let foreign = try plimsoll("/etc/passwd"), absent = try plimsoll("/nowhere/box")
        #expect(foreign.status == 1 && foreign.errors.contains("cannot use /etc/passwd as a black box: it does not begin as one"))
        #expect(absent.status == 1 && absent.errors.contains("cannot read the black box /nowhere/box: the directory does not exist"))
    }
}
