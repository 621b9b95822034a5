import Glibc

/// The pipe to the parent: standard input ends when the parent closes the pipe or is gone, however the parent
/// ended.
package enum ParentPipe {
    /// Returns when the parent closes the pipe or is gone.
    package static func waitUntilClosed() async {
        // If no thread can be started, do not wait: the service ends, which the caller notices.
        try? await PlainThread.run {
            var byte: UInt8 = 0
            while true {
                let count = read(STDIN_FILENO, &byte, 1)
                if count == 0 || (count < 0 && errno != EINTR) { break }
            }
        }
    }
}
