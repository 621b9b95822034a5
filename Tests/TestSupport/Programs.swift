import Foundation

/// Returns the path of a program of this package that was built beside the tests.
public func builtProgram(_ name: String) -> String {
    URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent().path + "/" + name
}
