import Foundation
import Plimsoll
import Testing

@testable import PlimsollCLI
@testable import PlimsollService

/// The frames of `top`.
@Suite struct TopViewTests {
    /// Returns the answer of a service at the warning line.
    static func answer(caches: Int = 2, tasks: Int = 1, actions: Int = 2, name: String = "thumbs") throws -> AdminAnswer {
        let holder = { (number: Int) in
            """
            {"name":"\(name)\(number == 0 ? "" : "-\(number)")","group":"\(number == 0 ? "media" : "")","tags":[],"rebuildCost":"cheap","releasesUnderPressure":true,
            "heldBytes":\(100_000_000 / (number + 1)),"volatileBytes":0,"limitBytes":\(number == 0 ? "134217728" : "null"),"cache":{"entries":10,"hits":90,"misses":10,
            "evictions":0,"expired":0,"purged":0,"droppedByKernel":0,"replaced":0,"rejected":0,"loads":0,"loadFailures":0,"loadSeconds":0}}
            """
        }
        let task = { (number: Int) in
            #"{"name":"export-\#(number)","ageSeconds":\#(12.34 + Double(number)),"completed":3,"total":4,"isExpiring":\#(number == 0),"origin":"Shop/Export.swift:12"}"#
        }
        let action = { (number: Int) in
            """
            {"eventID":1,"action":"release","mode":"live","level":"warning","origin":"pressure","evidence":"headroom","beganSeconds":\(90 + number),
            "tookSeconds":0.0031,"askedBytes":41943040,"releasedBytes":41943040,"releasedVolatileBytes":0,"takenBytes":0,"residentBeforeBytes":0,
            "residentAfterBytes":0,"usageBeforeBytes":0,"usageAfterBytes":0,"outcome":"done"}
            """
        }
        let text = """
            {"ok":true,"process":4711,"program":"shop","allowsChanges":false,"status":{"atSeconds":100,"level":"warning","isDryRun":false,
            "memory":{"atSeconds":100,"boundary":"maximum","limitBytes":536870912,"warningLineBytes":429496730,"criticalLineBytes":483183821,
            "usageBytes":524288000,"workingSetBytes":450000000,"availableBytes":100663296,"residentBytes":440401920,"chargedBytes":104857600,"volatileBytes":0,
            "observed":"warning","evidence":"headroom","shortfallBytes":12582912,"growthBytesPerSecond":3145728,"timeLeftSeconds":32,"stallShare":0.034},
            "holders":[\((0..<caches).map(holder).joined(separator: ","))],
            "tasks":{"running":\(tasks),"expiring":0,"ended":0,"expired":0,"givenUp":0,"leaked":0,"refused":0,"oldest":[\((0..<tasks).map(task).joined(separator: ","))]},
            "lifecycle":{"state":"active","stage":"complete","isReady":true,"warming":{},"scenes":0},"admissions":[],
            "counts":{"transitions":[],"dropped":[],"actions":[],"releases":{"count":0,"seconds":0,"byDuration":[],"askedBytes":0,"releasedBytes":0,
            "releasedVolatileBytes":0,"takenBytes":0,"residentFallBytes":0,"usageFallBytes":0}},
            "actions":[\((0..<actions).map(action).joined(separator: ","))],"support":"ownGroup","signals":[]}}
            """
        return try AdminJSON().answer(Array(text.utf8))
    }

    static func frame(_ answer: AdminAnswer, _ columns: Int, _ rows: Int) -> String {
        TopView(columns: columns, rows: rows).frame(answer).map { line in
            String(line.reversed().drop { $0 == " " }.reversed())
        }.joined(separator: "\n")
    }

    @Test func `a frame of 80 by 24 is drawn in full`() throws {
        let expected = """
            shop (4711)  active  warning (headroom), 12 MiB short                    q quits
            usage      [█████████████████████████████████████W▒▒▒▒c▒▒▒·]  500 MiB of 512 MiB
            available  96 MiB   resident 420 MiB   heap caches 100 MiB   volatile 0 B
            growth     3 MiB/s: at this rate usage meets the limit in 32 s   stalled 3.4 %

            CACHES
            media/thumbs      [███████████······]   95 MiB of 128 MiB    90 % hits cheap
            thumbs-1          [██████···········]   48 MiB               90 % hits cheap

            TASKS
            export-0          [█████████████····]   12.3 s  3 of 4  asked to end

            LAST ACTIONS
            9 s ago  release (headroom): 40 MiB in 3.1 ms
            10 s ago  release (headroom): 40 MiB in 3.1 ms
            """
        let frame = Self.frame(try Self.answer(), 80, 24).trimmingCharacters(in: .newlines)
        #expect(frame == expected, "\n\(frame)\n")
    }

    @Test func `a frame of 40 by 10 counts the parts without room`() throws {
        let expected = """
            shop (4711)  active  warning (headroom),
            usage      [█████Wc]  500 MiB of 512 MiB
            available  96 MiB   resident 420 MiB   h
            growth     3 MiB/s: at this rate usage m
            CACHES  (1 more)
            media/t… [███·]   95 MiB of 128 MiB    9
            TASKS
            export-0 [███·]   12.3 s  3 of 4  asked
            LAST ACTIONS  (1 more)
            9 s ago  release (headroom): 40 MiB in 3
            """
        let frame = Self.frame(try Self.answer(), 40, 10).trimmingCharacters(in: .newlines)
        #expect(frame == expected, "\n\(frame)\n")
    }

    @Test(arguments: [(1, 1), (20, 4), (40, 10), (79, 23), (80, 24), (81, 25), (132, 43), (300, 100)])
    func `a frame fits any amount of content`(columns: Int, rows: Int) throws {
        for many in [0, 1, 3, 60] {
            let lines = TopView(columns: columns, rows: rows).frame(try Self.answer(caches: many, tasks: many, actions: many))
            #expect(lines.count == max(4, rows))
            #expect(lines.allSatisfy { $0.count <= max(20, columns) })
        }
    }

    @Test func `each part gets a share of the lines, and the lines that other parts leave`() throws {
        let lines = TopView(columns: 80, rows: 24).frame(try Self.answer(caches: 40, tasks: 2, actions: 40))
        #expect(lines[5] == "CACHES  (34 more)")
        #expect(lines.count { $0.contains("hits") } == 6)
        #expect(lines.contains("TASKS"))
        #expect(lines.contains("LAST ACTIONS  (34 more)"))
    }

    @Test func `a service's names reach the terminal without control characters`() throws {
        let hostile = try Self.answer(name: "a\\u001b[2Jb\\u202e\\u4f60\\u0301c")
        let frame = TopView(columns: 80, rows: 24).frame(hostile).joined()
        #expect(!frame.unicodeScalars.contains { $0 == "\u{1B}" || $0 == "\u{202E}" || $0 == "\u{4F60}" || $0 == "\u{301}" })
    }

    @Test func `a manager that does not run is shown as stopped`() throws {
        var answer = try Self.answer()
        answer.status?.memory = nil
        #expect(Self.frame(answer, 80, 24).contains("not read yet: the manager does not run"))
        #expect(AdminText.status(try #require(answer.status)).contains("the manager does not run"))
    }

    @Test func `reclaimable memory is shown apart from the rest, and lines stay visible`() {
        #expect(TopView.bar(0.5, 0.9, width: 10, marks: [(0.2, "a"), (0.7, "w"), (0.95, "c")]) == "██A██▒▒w▒c")
        #expect(TopView.bar(0, 0, width: 4, marks: []) == "····")
        #expect(TopView.bar(2, 3, width: 4, marks: [(7, "w")]) == "████")
    }
}
