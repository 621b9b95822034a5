#if Hummingbird
public import HummingbirdCore
public import Logging
public import Metrics
import NIOCore
import NIOHTTPTypes

extension HTTP1Channel.Configuration {
    /// Connections that keep nobody: one that says nothing, or half a request, is closed after `idle`, one that does not take its answer after `answer`, and one whose
    /// request's body comes in drops when it has been waited for longer than `body` and its bytes allow. What was cut off in the middle is said in the log.
    ///
    ///     Application(
    ///         router: router, server: .http1(configuration: .bounded(logger: logger)),
    ///         configuration: .init(availableConnectionsDelegate: .maximum(64, logger: logger)))
    ///
    /// Hummingbird by itself has neither bound: half a request stays for as long as its sender does, and so does an answer that nobody reads.
    ///
    /// - Parameters:
    ///   - idle: how long a connection may say nothing while it is its turn to: before, between and in requests.
    ///   - answer: how long a piece of an answer may wait to be taken.
    ///   - body: how long the body of a request may be waited for in all. Waiting alone counts, not the time that a handler takes between two parts.
    ///   - bytesPerSecond: by how many bytes of a body that time becomes a second longer, so that a large one may take its time; more than 0.
    ///   - logger: where to say who was cut off, at `info`.
    ///   - metrics: where to count them, as `plimsoll_connections_cut_off_total` by `reason`.
    public static func bounded(
        idle: Duration = .seconds(30), answer: Duration = .seconds(10), body: Duration = .seconds(60), bytesPerSecond: Int = 500,
        logger: Logger, metrics: any MetricsFactory = MetricsSystem.factory
    ) -> Self {
        precondition(bytesPerSecond > 0, "bounded: bytesPerSecond is \(bytesPerSecond), allowed is 1 or more")
        let reports = CutOffReports(logger: logger, metrics: metrics)
        let limits = ConnectionBounds.Limits(
            idle: .init(idle), answer: .init(answer), body: .init(body), bytesPerSecond: Int64(bytesPerSecond))
        return .init(additionalChannelHandlers: [ConnectionBounds(limits, reports)])
    }
}

/// Where it is told that connections are cut off.
struct CutOffReports: Sendable {
    enum Reason: String {
        case noRequest = "no whole request came"
        case tooSlow = "a request's body came too slowly"
        case notTaken = "an answer was not taken"
    }

    private let logger: Logger
    private let noRequest: Counter
    private let tooSlow: Counter
    private let notTaken: Counter

    init(logger: Logger, metrics: any MetricsFactory) {
        func counter(_ reason: String) -> Counter {
            Counter(label: "plimsoll_connections_cut_off_total", dimensions: [("reason", reason)], factory: metrics)
        }
        self.logger = logger
        (noRequest, tooSlow, notTaken) = (counter("no_request"), counter("body_too_slow"), counter("answer_not_taken"))
    }

    func tell(_ reason: Reason) {
        let counter =
            switch reason {
            case .noRequest: noRequest
            case .tooSlow: tooSlow
            case .notTaken: notTaken
            }
        counter.increment()
        logger.info("connection cut off", metadata: ["plimsoll.reason": "\(reason.rawValue)"])
    }
}

/// Closes a connection that keeps the server waiting. Belongs to its event loop.
final class ConnectionBounds: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    /// What the server waits for.
    private enum Wait {
        /// A request, or the next part of one.
        case request
        /// The client, to take what was written.
        case taking
        /// Nothing of the client's: a handler works, or does not want more yet.
        case nothing
    }

    /// How long is waited for what.
    struct Limits {
        var idle: TimeAmount
        var answer: TimeAmount
        var body: TimeAmount
        var bytesPerSecond: Int64
    }

    private let limits: Limits
    private let reports: CutOffReports
    /// The next part is wanted and has not come.
    private var isWanted = false
    /// In the middle of a request.
    private var isReading = false
    /// Requests that came, and of them how many have no answer yet.
    private var requests = 0, unanswered = 0
    /// Pieces of answers that have not been taken.
    private var owed = 0
    private var wait = Wait.nothing
    /// When the wait began.
    private var waitBegan = NIODeadline.uptimeNanoseconds(0)
    /// How long the body of this request may still be waited for.
    private var bodyLeft = TimeAmount.zero
    private var alarm: Scheduled<Void>?

    init(_ limits: Limits, _ reports: CutOffReports) { (self.limits, self.reports) = (limits, reports) }

    func handlerRemoved(context: ChannelHandlerContext) { rest(context) }

    func channelInactive(context: ChannelHandlerContext) {
        rest(context)
        context.fireChannelInactive()
    }

    func read(context: ChannelHandlerContext) {
        isWanted = true
        look(context)
        context.read()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        isWanted = false
        switch unwrapInboundIn(data) {
        case .head:
            rest(context)
            isReading = true
            requests += 1
            unanswered += 1
            bodyLeft = limits.body
        case .body(let part):
            // The wait for it counts before what it brings.
            rest(context)
            let earned = Int64(part.readableBytes).multipliedReportingOverflow(by: 1_000_000_000)
            let longer = bodyLeft.nanoseconds.addingReportingOverflow(earned.overflow ? .max : earned.partialValue / limits.bytesPerSecond)
            bodyLeft = .nanoseconds(longer.overflow ? .max : longer.partialValue)
        case .end: isReading = false
        }
        look(context)
        context.fireChannelRead(data)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        if case .end = unwrapOutboundIn(data) { unanswered -= 1 }
        owed += 1
        look(context)
        let taken = promise ?? context.eventLoop.makePromise()
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        taken.futureResult.whenComplete { _ in
            let (bounds, context) = bound.value
            bounds.owed -= 1
            // The next piece has its own time.
            bounds.rest(context)
            bounds.look(context)
        }
        context.write(data, promise: taken)
    }

    /// Sets the alarm for what is waited for now, unless it is set.
    private func look(_ context: ChannelHandlerContext) {
        let now: Wait = owed > 0 ? .taking : isWanted && (isReading || unanswered == 0) ? .request : .nothing
        guard now != wait, context.channel.isActive else { return }
        rest(context)
        (wait, waitBegan) = (now, context.eventLoop.now)
        guard now != .nothing else { return }
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        let time = now == .taking ? limits.answer : isReading ? min(limits.idle, max(.zero, bodyLeft)) : limits.idle
        alarm = context.eventLoop.scheduleTask(in: time) {
            let (bounds, context) = bound.value
            bounds.cutOff(context)
        }
    }

    /// Ends the wait, and counts what it took of the time that a body has.
    private func rest(_ context: ChannelHandlerContext) {
        alarm?.cancel()
        if wait == .request, isReading { bodyLeft = bodyLeft - (context.eventLoop.now - waitBegan) }
        (alarm, wait) = (nil, .nothing)
    }

    private func cutOff(_ context: ChannelHandlerContext) {
        // After a whole request silence is how clients keep a connection.
        let isSlow = isReading && context.eventLoop.now - waitBegan < limits.idle
        let reason: CutOffReports.Reason? =
            wait == .taking ? .notTaken : isSlow ? .tooSlow : isReading || requests == 0 ? .noRequest : nil
        if let reason { reports.tell(reason) }
        context.close(promise: nil)
    }
}
#endif
