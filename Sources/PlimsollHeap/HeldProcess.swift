import CPlimsollHeap

/// A child process that is held for a moment before its end, with all of its memory.
package enum HeldProcess {
    /// Waits until the child `process` has stopped itself by SIGSTOP, lets it go on, waits for its end, and calls
    /// `beforeEnd` just before. All on the calling thread, the only one that may wait for the child. A child that SIGKILL
    /// ends has no such moment.
    ///
    /// - Returns: The status as wait(2) has it, -1 if unknown; and the errno if the child could not be traced
    ///   (ptrace(2)).
    package static func waitForEnd(of process: Int32, beforeEnd: () -> Void) -> (status: Int32, failure: Int32) {
        withoutActuallyEscaping(beforeEnd) { body in
            var body = body, status: Int32 = -1
            let failure = withUnsafeMutablePointer(to: &body) { body in
                plimsoll_census_watch(
                    process, { $0?.assumingMemoryBound(to: (() -> Void).self).pointee() }, body, &status)
            }
            return (status, failure)
        }
    }
}
