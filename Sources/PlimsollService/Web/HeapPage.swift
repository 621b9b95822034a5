// The part of Foundation without locale data.
import FoundationEssentials
import Plimsoll

/// A census of the heap over HTTP.
struct HeapPage: Sendable {
    private let handler: AdminCommandHandler

    init(_ manager: ResourceManager) {
        handler = AdminCommandHandler(manager: manager, allowsChanges: false, counts: { .init() })
    }

    /// Counts the heap on a thread of its own, without blocking the thread of the web server.
    func answer(_ question: AdminPages.Question) async -> AdminPages.Answer {
        // A census costs processor time. A page of another site cannot read the answer, but could ask for many.
        guard [nil, "same-origin", "none"].contains(question.fetchSite) else {
            return .init(403, "refused: a census can be asked for only by a page of this server\n")
        }
        var request = AdminRequest(.heap)
        if let rows = question.query["rows"] {
            guard let number = Int(rows), (1...1000).contains(number) else {
                return .init(400, "rows is \"\(rows.prefix(32))\", allowed is 1...1000\n")
            }
            request.rows = number
        }
        let answer = await withCheckedContinuation { done in
            let isStarted = Thread.start("plimsoll-census") { [request] in
                done.resume(returning: handler.answer(request))
            }
            if !isStarted {
                done.resume(
                    returning: AdminAnswer(
                        AdminRefusal(.failed, "cannot count the heap because no thread can be started")))
            }
        }
        guard let heap = answer.heap else { return .init(503, "\(answer.error ?? "the heap was not counted")\n") }
        return .init(200, String(decoding: AdminJSON().line(heap), as: UTF8.self), type: "application/json")
    }
}
