import CEpoll
import Glibc

/// Sends the requests of a trace when they are due, without a wait for earlier answers (an open loop), from one thread.
///
/// At most `connections` are in flight. Requests due meanwhile wait their turn. A request that has waited for a second
/// is given up as late. A request whose answer does not come within the route's patience after sending is given up as
/// well, and the connection is closed. Latency counts from the time at which a request was due.
public final class LoadGenerator {
    private let trace: Trace
    private let port: UInt16
    private let epoll: Int32
    private var connections: [Connection]
    private var idle: [Int]
    /// Indices of arrivals that are due and not sent, oldest first, from `waitingFrom`.
    private var waiting: [Int] = []
    private var waitingFrom = 0
    private var tally: Tally
    private var goneAt: Double?
    private var worstWakeDelay = 0.0
    /// Beginning of the part that counts, on the monotonic clock.
    private let start: Double

    /// Seconds for which a request waits for a connection.
    private static let mostWait = 1.0
    /// Seconds between checks for answers that did not come.
    private static let sweepEvery = 0.02
    /// The longest to wait for events at a time.
    private static let longestWait = 0.02

    /// Prepares the load.
    ///
    /// - Parameters:
    ///   - trace: requests to send.
    ///   - port: port of the server on loopback.
    ///   - connections: the most requests in flight.
    public init(_ trace: Trace, port: UInt16, connections: Int = 256) {
        self.trace = trace
        self.port = port
        epoll = e2e_epoll_make()
        precondition(epoll >= 0, "LoadGenerator: epoll_create1 failed with errno \(errno)")
        self.connections = Array(repeating: Connection(), count: connections)
        idle = Array((0..<connections).reversed())
        tally = Tally(trace)
        start = Self.clock + trace.warmUp
    }

    /// Sends everything and waits for the answers, or until the server is gone.
    public func run() -> LoadResult {
        var next = 0, swept = -Double.infinity
        var keys = [UInt32](repeating: 0, count: 256)
        while goneAt == nil,
            next < trace.arrivals.count || waitingFrom < waiting.count || idle.count < connections.count
        {
            let now = now
            while next < trace.arrivals.count, trace.arrivals[next].at <= now {
                worstWakeDelay = max(worstWakeDelay, now - trace.arrivals[next].at)
                waiting.append(next)
                next += 1
            }
            sendWaiting(now)
            if now - swept > Self.sweepEvery {
                giveUpLate(now)
                swept = now
            }
            let due = next < trace.arrivals.count ? trace.arrivals[next].at - now : Self.longestWait
            let count = e2e_epoll_wait(epoll, Int64(min(due, Self.longestWait) * 1e9), &keys, Int32(keys.count))
            for key in keys[..<Int(count)] { proceed(Int(key)) }
        }
        for index in connections.indices { connections[index].close() }
        close(epoll)
        var result = tally.result(goneAt: goneAt)
        result.worstWakeDelayMilliseconds = worstWakeDelay * 1000
        result.processorSeconds = Self.time(CLOCK_PROCESS_CPUTIME_ID)
        return result
    }

    // MARK: Sending

    private func sendWaiting(_ now: Double) {
        while waitingFrom < waiting.count, goneAt == nil {
            let request = waiting[waitingFrom]
            if now - trace.arrivals[request].at > Self.mostWait {
                tally.note(request, .late)
            } else if let index = idle.popLast() {
                send(request, over: index, now)
            } else {
                break
            }
            waitingFrom += 1
        }
        if waitingFrom > 4096 {
            waiting.removeFirst(waitingFrom)
            waitingFrom = 0
        }
    }

    private func send(_ request: Int, over index: Int, _ now: Double) {
        connections[index].request = request
        connections[index].sentAt = now
        if connections[index].file < 0,
            connections[index].open(port: port, epoll: epoll, key: UInt32(index)) == .refused
        {
            return serverIsGone()
        }
        if connections[index].send(trace.arrivals[request].request) == .closed { fail(index) }
    }

    // MARK: Receiving

    private func proceed(_ index: Int) {
        // Closed after epoll reported the connection as ready.
        guard connections[index].file >= 0 else { return }
        switch connections[index].proceed(epoll: epoll, key: UInt32(index)) {
        case .goesOn: break
        case .answered: finish(index)
        case .closed: fail(index)
        case .refused: serverIsGone()
        }
    }

    private func finish(_ index: Int) {
        guard let request = connections[index].request else { return }
        let answer = connections[index].answer
        tally.note(request, answer, latency: now - trace.arrivals[request].at)
        connections[index].request = nil
        idle.append(index)
    }

    /// Handles a cut connection. A request that waited for an answer has failed.
    private func fail(_ index: Int) {
        let request = connections[index].request
        connections[index].close()
        guard let request else { return }
        tally.note(request, .failed)
        idle.append(index)
    }

    private func giveUpLate(_ now: Double) {
        for index in connections.indices {
            guard let request = connections[index].request,
                now - connections[index].sentAt > trace.arrivals[request].route.patience
            else { continue }
            tally.note(request, .late)
            connections[index].close()
            idle.append(index)
        }
    }

    /// Ends the load; requests without an outcome have failed.
    private func serverIsGone() { goneAt = goneAt ?? now }

    // MARK: Time

    private var now: Double { Self.clock - start }

    private static var clock: Double { time(CLOCK_MONOTONIC) }

    private static func time(_ clock: clockid_t) -> Double {
        var time = timespec()
        clock_gettime(clock, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }
}
