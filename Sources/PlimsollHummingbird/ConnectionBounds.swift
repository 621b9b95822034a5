#if Hummingbird
public import HummingbirdCore
public import Logging
public import Metrics
import NIOCore
import NIOHTTPTypes

extension HTTP1Channel.Configuration {
    /// Returns a configuration that closes slow and idle connections. A connection without input, or with an
    /// incomplete request, is closed after `idle`. A connection that does not read the answer is closed after
    /// `answer`. A connection with a slow request body is closed when the total wait exceeds `body` plus the time
    /// earned by received bytes. Connections closed in the middle of an exchange are logged.
    ///
    ///     Application(
    ///         router: router, server: .http1(configuration: .bounded(logger: logger)),
    ///         configuration: .init(availableConnectionsDelegate: .maximum(64, logger: logger)))
    ///
    /// Hummingbird alone has neither bound: an incomplete request stays for as long as the sender does, and so does
    /// an unread answer.
    ///
    /// - Parameters:
    ///   - idle: longest silence of a connection before, between and in requests.
    ///   - answer: longest time until a part of an answer is taken.
    ///   - body: longest total wait for the body of a request. Only waiting counts, not the time that a handler takes
    ///     between two parts.
    ///   - bytesPerSecond: number of body bytes that extend `body` by a second, so that a large body has enough time;
    ///     more than 0.
    ///   - logger: target of messages about closed connections, at `info`.
    ///   - metrics: factory of the counter `plimsoll_connections_cut_off_total` by `reason`.
    public static func bounded(
        idle: Duration = .seconds(30), answer: Duration = .seconds(10), body: Duration = .seconds(60),
        bytesPerSecond: Int = 500,
        logger: Logger, metrics: any MetricsFactory = MetricsSystem.factory
    ) -> Self {
        precondition(bytesPerSecond > 0, "bounded: bytesPerSecond is \(bytesPerSecond), allowed is 1 or more")
        let reports = CutOffReports(logger: logger, metrics: metrics)
        let limits = ConnectionBounds.Limits(
            idle: .init(idle), answer: .init(answer), body: .init(body), bytesPerSecond: Int64(bytesPerSecond))
        return .init(additionalChannelHandlers: [ConnectionBounds(limits, reports)])
    }
}

/// Reports connections that were closed, to a log and counters.
struct CutOffReports: Sendable {
    enum Reason: String {
        case noRequest = "no complete request arrived"
        case tooSlow = "the body of a request arrived too slowly"
        case notTaken = "an answer was not read"
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

    func record(_ reason: Reason) {
        let counter =
            switch reason {
            case .noRequest: noRequest
            case .tooSlow: tooSlow
            case .notTaken: notTaken
            }
        counter.increment()
        logger.info("closed a connection", metadata: ["plimsoll.reason": "\(reason.rawValue)"])
    }
}

/// Closes a connection that keeps the server waiting. Belongs to the event loop of the channel.
final class ConnectionBounds: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    /// The event that the server waits for.
    private enum Wait {
        /// A request, or the next part of a request.
        case request
        /// The client, to read written data.
        case taking
        /// No event of the client: a handler works, or does not want more data yet.
        case nothing
    }

    /// Longest waits.
    struct Limits {
        var idle: TimeAmount
        var answer: TimeAmount
        var body: TimeAmount
        var bytesPerSecond: Int64
    }

    private let limits: Limits
    private let reports: CutOffReports
    /// True while the next part is wanted and has not arrived.
    private var isWanted = false
    /// True in the middle of a request.
    private var isReading = false
    /// Number of requests received, and number of requests without an answer.
    private var requests = 0, unanswered = 0
    /// Number of answer parts not yet taken.
    private var owed = 0
    private var wait = Wait.nothing
    /// Start of the current wait.
    private var waitBegan = NIODeadline.uptimeNanoseconds(0)
    /// Remaining wait allowed for the body of this request.
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
        schedule(context)
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
            // The wait for this part is deducted before the time that the part earns is added.
            rest(context)
            let earned = Int64(part.readableBytes).multipliedReportingOverflow(by: 1_000_000_000)
            let longer = bodyLeft.nanoseconds.addingReportingOverflow(
                earned.overflow ? .max : earned.partialValue / limits.bytesPerSecond)
            bodyLeft = .nanoseconds(longer.overflow ? .max : longer.partialValue)
        case .end: isReading = false
        }
        schedule(context)
        context.fireChannelRead(data)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        if case .end = unwrapOutboundIn(data) { unanswered -= 1 }
        owed += 1
        schedule(context)
        let taken = promise ?? context.eventLoop.makePromise()
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        taken.futureResult.whenComplete { _ in
            let (bounds, context) = bound.value
            bounds.owed -= 1
            // The next part has a time limit of its own.
            bounds.rest(context)
            bounds.schedule(context)
        }
        context.write(data, promise: taken)
    }

    /// Sets the alarm for the current wait, unless already set.
    private func schedule(_ context: ChannelHandlerContext) {
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

    /// Ends the wait, and deducts the time from the body's allowance.
    private func rest(_ context: ChannelHandlerContext) {
        alarm?.cancel()
        if wait == .request, isReading { bodyLeft = bodyLeft - (context.eventLoop.now - waitBegan) }
        (alarm, wait) = (nil, .nothing)
    }

    private func cutOff(_ context: ChannelHandlerContext) {
        // After a complete request, silence is normal: clients keep connections open.
        let isSlow = isReading && context.eventLoop.now - waitBegan < limits.idle
        let reason: CutOffReports.Reason? =
            wait == .taking ? .notTaken : isSlow ? .tooSlow : isReading || requests == 0 ? .noRequest : nil
        if let reason { reports.record(reason) }
        context.close(promise: nil)
    }
}
#endif
