import Foundation
import Plimsoll
import PlimsollFoundation
import PlimsollLifecycle
import TestSupport
import Testing

@Suite(.serialized, .timeLimit(.minutes(5))) struct QuiesceAdapterTests {
    let set = QuiesceSet(time: .running)
    let log = Log<String>()

    @Test func `C38 C39 C9 a dispatch queue is suspended once and resumed once under flapping states`() async {
        let queue = DispatchQueue(label: "work")
        let registration = set.add(queue)
        #expect(set.members == ["work"])
        for _ in 0..<3 {
            set.setState(.inactive)
            set.setState(.background)
            set.setState(.inactive)
        }
        queue.async { [log] in log.add("work") }
        log.add("resuming")
        set.setState(.active)
        await log.contains("work")
        // One resume too many, or one too few, would end the process or keep the queue from running.
        for _ in 0..<3 {
            set.setState(.inactive)
            set.setState(.active)
        }
        queue.async { [log] in log.add("more") }
        await log.contains("more")
        #expect(log.all == ["resuming", "work", "more"])
        registration.cancel()
    }

    @Test func `C39 a queue suspended by other code stays suspended`() async {
        let queue = DispatchQueue(label: "work")
        set.add(queue)
        queue.suspend()
        set.setState(.inactive)
        set.setState(.active)
        queue.async { [log] in log.add("work") }
        log.add("by hand")
        queue.resume()
        await log.contains("work")
        #expect(log.all == ["by hand", "work"])
    }

    @Test func `C38 a paused queue or timer is released in good order, with the set or before`() async {
        for leaves in [true, false] {
            var set: QuiesceSet? = QuiesceSet(time: .running)
            var queue: DispatchQueue? = DispatchQueue(label: "work")
            let timer = DispatchSource.makeTimerSource()
            timer.schedule(deadline: .now() + .seconds(3600))
            timer.activate()
            let registrations = [set?.add(queue!), set?.add(timer, name: "timer")]
            set?.setState(.inactive)
            queue?.async { [log] in log.add("work \(leaves)") }
            if leaves { for registration in registrations { registration?.cancel() } }
            queue = nil
            set = nil
            await log.contains("work \(leaves)")
            timer.cancel()
        }
        // Both queues ran on, and neither release ended the process. The release of a suspended source or queue would.
        #expect(log.all == ["work true", "work false"])
    }

    @Test func `C38 a queue that cannot be suspended is refused at once`() async {
        await #expect(processExitsWith: .failure) { QuiesceSet(time: .running).add(DispatchQueue.main) }
        await #expect(processExitsWith: .failure) { QuiesceSet(time: .running).add(DispatchQueue.global()) }
        await #expect(processExitsWith: .failure) { QuiesceSet(time: .running).add(OperationQueue.main) }
    }

    @Test func `C34 C35 C82 a queue goes on in the background by setting or lease, and the rung quiesce suspends both`() async {
        let goesOn = DispatchQueue(label: "goes on"), leased = DispatchQueue(label: "leased"), work = DispatchQueue(label: "work")
        set.add(goesOn, suspendsInBackground: false)
        set.add(leased, workClass: "heartbeat")
        set.add(work)
        let lease = set.lease("voip", admitting: "heartbeat")
        set.setState(.background)
        for queue in [work, goesOn, leased] { queue.async { [log] in log.add(queue.label) } }
        await log.contains("goes on")
        await log.contains("leased")
        #expect(!log.all.contains("work"))
        set.setState(.active)
        await log.contains("work")
        set.setPressure(.critical, isQuiescing: true)
        work.async { [log] in log.add("more") }
        log.add("calm")
        set.setPressure(.normal, isQuiescing: false)
        await log.contains("more")
        #expect(log.all.suffix(2) == ["calm", "more"])
        lease.cancel()
    }

    @Test func `C38 C39 a dispatch timer does not fire while paused, and fires once for all missed times`() async {
        let queue = DispatchQueue(label: "timer")
        let timer = DispatchSource.makeTimerSource(queue: queue)
        timer.setEventHandler { [log] in log.add("fired") }
        timer.schedule(deadline: .now() + .seconds(3600))
        timer.activate()
        set.add(timer, name: "timer")
        set.setState(.inactive)
        timer.schedule(deadline: .now())
        log.add("resuming")
        set.setState(.active)
        await log.contains("fired")
        #expect(log.all == ["resuming", "fired"])
        timer.cancel()
    }

    @Test func `C38 C39 C82 an operation queue is narrowed and suspended, and the earlier values are put back`() {
        let queue = OperationQueue(), open = OperationQueue(), own = OperationQueue()
        queue.maxConcurrentOperationCount = 8
        own.isSuspended = true
        for queue in [queue, open, own] { set.add(queue) }
        var seen: [[Int]] = []
        func record() { seen.append([queue.maxConcurrentOperationCount, queue.isSuspended ? 0 : 1, own.isSuspended ? 0 : 1]) }
        set.setPressure(.warning, isQuiescing: false)
        record()
        set.setPressure(.critical, isQuiescing: true)
        record()
        #expect(open.maxConcurrentOperationCount == 1)
        set.setPressure(.normal, isQuiescing: false)
        record()
        set.setState(.inactive)
        record()
        set.setState(.background)
        record()
        set.setState(.active)
        record()
        #expect(seen == [[4, 1, 0], [1, 1, 0], [8, 1, 0], [8, 0, 0], [1, 1, 0], [8, 1, 0]])
        #expect(open.maxConcurrentOperationCount == OperationQueue.defaultMaxConcurrentOperationCount)
    }

    @Test func `an operation queue with a limit of zero runs no operation when memory is short or in the background`() {
        let queue = OperationQueue()
        queue.maxConcurrentOperationCount = 0
        set.add(queue)
        set.setPressure(.warning, isQuiescing: false)
        #expect(queue.maxConcurrentOperationCount == 0)
        set.setState(.background)
        #expect(queue.maxConcurrentOperationCount == 0)
        set.setState(.active)
        set.setPressure(.normal, isQuiescing: false)
        #expect(queue.maxConcurrentOperationCount == 0 && !queue.isSuspended)
    }

    @Test func `C39 a foreign change during the narrowing of an operation queue stays`() {
        let queue = OperationQueue()
        queue.maxConcurrentOperationCount = 8
        let registration = set.add(queue)
        set.setPressure(.warning, isQuiescing: false)
        queue.maxConcurrentOperationCount = 3
        set.setPressure(.normal, isQuiescing: false)
        #expect(queue.maxConcurrentOperationCount == 3)
        set.setState(.background)
        #expect(queue.maxConcurrentOperationCount == 1)
        registration.cancel()
        #expect(queue.maxConcurrentOperationCount == 3 && !queue.isSuspended)
    }
}

extension Log<String> {
    /// Waits for a line.
    func contains(_ line: String) async { await until("the line \(line)") { all.contains(line) } }
}
