import Glibc
import Plimsoll

extension LinkLoop {
    func rest(_ pause: Duration) {
        let end = time.elapsed() + pause
        while !isStopped {
            let left = end - time.elapsed()
            guard left > .zero else { return }
            _ = wait(for: -1, writing: false, atMost: left)
        }
    }

    /// Blocks until `file` is ready, a wake-up comes or the time is over. Returns true if `file` is ready.
    func wait(for file: Int32, writing: Bool, atMost limit: Duration) -> Bool {
        withUnsafeTemporaryAllocation(of: pollfd.self, capacity: 2) { files in
            files[0] = pollfd(fd: bell.file, events: Int16(POLLIN), revents: 0)
            files[1] = pollfd(fd: file, events: Int16(writing ? POLLIN | POLLOUT : POLLIN), revents: 0)
            // Without an eventfd the flag is checked periodically.
            let limit = bell.file < 0 ? min(limit, .milliseconds(50)) : limit
            let ready = kernel.wait(for: files, nanoseconds: max(0, limit.inNanoseconds))
            if ready < 0 { usleep(10_000) }  // No memory for a wait: sleep rather than spin.
            if files[0].revents == 0 { _ = bell.take() } else if !bell.heard(files[0].revents) { bell.repair() }
            return ready > 0 && files[1].revents != 0
        }
    }
}
