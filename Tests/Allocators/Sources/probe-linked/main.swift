import Glibc
import Plimsoll
import PlimsollJemalloc
import Report

/// Returns the background thread and the decay time, or "untouched" if set-up is refused, as set-up must be if another
/// allocator owns malloc.
func settings() -> String {
    // Without jemalloc's figures, jemalloc does not own malloc.
    guard ResourceManager.heap != nil else {
        do throws(JemallocError) { try Jemalloc.setUp() } catch { return "untouched" }
        return "set up, although it does not own malloc"
    }
    guard let settings = Jemalloc.settings else { return "no settings" }
    return "\(settings.hasBackgroundThread ? "thread" : "no-thread") \(settings.decay.components.seconds)s"
}

/// Returns true if a forked child, which starts without the background thread, has that thread again after a give-back.
func isBackAfterFork() -> Bool {
    // Swift hides fork because a child must not use most of the parent's state. This child uses malloc and jemalloc
    // only.
    let fork = unsafeBitCast(dlsym(nil, "fork"), to: (@convention(c) () -> pid_t).self)
    let child = fork()
    if child == 0 {
        ResourceManager.giveBackHeap()
        _exit(Jemalloc.settings?.hasBackgroundThread == true ? 0 : 1)
    }
    var status: Int32 = -1
    waitpid(child, &status, 0)
    return status == 0
}

let found = settings()
await Report.finish(found, isBackAfterFork() ? "back-after-fork" : "lost-by-fork")
