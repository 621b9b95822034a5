import ArgumentParser
import Foundation
import Plimsoll
import PlimsollDemos
import PlimsollLinux

/// Tells how a process ended, from its black box.
struct AutopsyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "autopsy",
        abstract: "Tell how a service ended: how fast memory rose, what grew, what was released and what was refused.",
        discussion: """
            Reads the black box of a service (PLIMSOLL_BLACK_BOX). While the service runs again, its box has the new run, and \
            FILE.previous the one before: that one is shown. --running shows the present run.
            """)

    @Argument(
        help: "Black box; plimsoll.box in $RUNTIME_DIRECTORY or here without one.",
        completion: .file())
    var file: String?
    @Flag(help: "Show the present run of a living service.") var running = false

    func run() throws {
        try reportingFailure {
            let path = try file ?? Self.standard()
            do {
                let (contents, isLiving) = try BoxFile.read(path)
                if isLiving, !running {
                    let previous = BoxFile.previous(of: path)
                    guard FileManager.default.fileExists(atPath: previous) else {
                        throw Failure.failed(
                            "process \(contents.writer.process) runs, and \(printable(path)) has no run before; --running shows this one"
                        )
                    }
                    Output.line(
                        "# process \(contents.writer.process) runs; the run before, from \(printable(previous)):")
                    return Self.show(try BoxFile.read(previous).contents, isLiving: false)
                }
                Self.show(contents, isLiving: isLiving)
            } catch let error as BoxFileError {
                throw Failure.failed(error.description)
            }
        }
    }

    private static func standard() throws -> String {
        let runtime = ProcessInfo.processInfo.environment["RUNTIME_DIRECTORY"]?.split(separator: ":").first.map(
            String.init)
        let paths = [runtime, "."].compactMap { $0 }.map { "\($0)/plimsoll.box" }
        guard let path = paths.first(where: { FileManager.default.fileExists(atPath: $0) }) else {
            throw Failure.unavailable(
                "cannot find a black box (\(paths.joined(separator: ", "))); name its file, and check PLIMSOLL_BLACK_BOX of the service"
            )
        }
        return path
    }

    private static func show(_ contents: BoxContents, isLiving: Bool) {
        let story = BoxStory(contents, isLiving: isLiving)
        for line in story.lines({ Self.time($0) }) { Output.line(line) }
    }

    private static func time(_ sinceEpoch: Duration) -> String {
        Date(timeIntervalSince1970: sinceEpoch.inSeconds).formatted(.iso8601)
    }
}
