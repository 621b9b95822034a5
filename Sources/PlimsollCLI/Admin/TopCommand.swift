import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollService

/// Shows the memory of a running service, live.
struct TopCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "top", abstract: "Show the memory of a running service live.",
        discussion: """
            The bar shows usage against the limit: memory that cannot be reclaimed, then reclaimable memory (shaded). w and c mark where warning and critical begin, capital once passed. q or Ctrl-C quits. \
            Without a terminal, one frame is printed; with --json, one line per poll.
            """)

    @Option(help: "Seconds between two polls.") var interval = 1.0
    @OptionGroup var admin: AdminOptions

    func validate() throws { try Allowed.seconds(interval, "--interval", in: 0.1...10) }

    func run() throws {
        try reportingFailure {
            let signals = SignalQueue()
            let client = try admin.connect()
            var request = AdminRequest(Output.isTerminal || admin.json ? .watch : .status)
            if request.command == .watch { request.milliseconds = Int(interval * 1000) }
            let first = try AdminOptions.failing { () throws(AdminError) in try client.line(for: request) }
            let answer = try AdminOptions.failing { () throws(AdminError) in try client.decode(first) }
            try AdminOptions.check(answer)
            if admin.json {
                try printLines(first, client, signals)
            } else if Output.isTerminal {
                let screen = Screen()
                defer { screen.restore() }
                try show(answer, client, signals)
            } else {
                Output.line(TopView(columns: 80, rows: 24).frame(answer).joined(separator: "\n"))
            }
        }
    }

    private func printLines(_ first: String, _ client: AdminClient, _ signals: SignalQueue) throws {
        var line = first
        while Output.write(line + "\n", to: STDOUT_FILENO) {
            while !client.hasLine, !Screen.isReadable(client.descriptor, within: .milliseconds(100)) {
                if signals.endingArrived() != nil { return }
            }
            line = try AdminOptions.failing { () throws(AdminError) in try client.nextLine() }
        }
    }

    private func show(_ first: AdminAnswer, _ client: AdminClient, _ signals: SignalQueue) throws {
        var answer = first, drawn: (columns: Int, rows: Int)?
        while signals.endingArrived() == nil {
            let size = Screen.size
            if drawn.map({ $0 != size }) ?? true {
                Screen.draw(TopView(columns: size.columns, rows: size.rows).frame(answer))
                drawn = size
            }
            let wait = client.hasLine ? Duration.zero : .milliseconds(100)
            if Screen.keys(within: wait, beside: client.descriptor).contains(where: {
                $0 == "q" || $0 == "Q" || $0 == "\u{3}"
            }) {
                return
            }
            guard client.hasLine || Screen.isReadable(client.descriptor, within: .zero) else { continue }
            answer = try AdminOptions.failing { () throws(AdminError) in try client.decode(client.nextLine()) }
            try AdminOptions.check(answer)
            drawn = nil
        }
    }
}

/// The terminal's alternate screen, with unbuffered keys. The owner must call `restore()`.
final class Screen {
    private var before = termios()
    private let hasKeys: Bool

    init() {
        hasKeys = isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &before) == 0
        if hasKeys {
            var raw = before
            raw.c_lflag &= ~tcflag_t(ICANON | ECHO)
            withUnsafeMutableBytes(of: &raw.c_cc) { characters in
                // No suspend key: a stopped process would leave the terminal in this mode.
                characters[Int(VSUSP)] = 0
                (characters[Int(VMIN)], characters[Int(VTIME)]) = (0, 0)
            }
            tcsetattr(STDIN_FILENO, TCSANOW, &raw)
        }
        // Use the alternate screen, hide the cursor, and cut lines that are too wide instead of wrapping them.
        Output.raw("\u{1B}[?1049h\u{1B}[?25l\u{1B}[?7l\u{1B}[2J")
    }

    func restore() {
        Output.raw("\u{1B}[?7h\u{1B}[?25h\u{1B}[?1049l")
        if hasKeys { tcsetattr(STDIN_FILENO, TCSANOW, &before) }
    }

    /// Draws lines from the top left; the first is highlighted. Each line is erased before drawing, not after: an
    /// erase behind a full line would remove the last character.
    static func draw(_ lines: [String]) {
        let all = lines.enumerated().map { row, line in "\u{1B}[2K" + (row == 0 ? "\u{1B}[7m\(line)\u{1B}[0m" : line) }
        Output.raw("\u{1B}[H" + all.joined(separator: "\r\n"))
    }

    static var size: (columns: Int, rows: Int) {
        var size = winsize()
        guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else {
            return (80, 24)
        }
        return (Int(size.ws_col), Int(size.ws_row))
    }

    static func isReadable(_ file: Int32, within limit: Duration) -> Bool {
        var one = pollfd(fd: file, events: Int16(POLLIN), revents: 0)
        return poll(&one, 1, Int32(limit.milliseconds)) > 0
    }

    /// Returns the keys pressed. Waits until a key is pressed, `file` is readable, or the limit passes.
    static func keys(within limit: Duration, beside file: Int32) -> String {
        var both = [
            pollfd(fd: isatty(STDIN_FILENO) == 1 ? STDIN_FILENO : -1, events: Int16(POLLIN), revents: 0),
            pollfd(fd: file, events: Int16(POLLIN), revents: 0),
        ]
        guard poll(&both, 2, Int32(limit.milliseconds)) > 0, both[0].revents != 0 else { return "" }
        var bytes = [UInt8](repeating: 0, count: 64)
        let count = read(STDIN_FILENO, &bytes, bytes.count)
        // A terminal that is gone counts as the quit key, too.
        return count <= 0 ? "q" : String(decoding: bytes[..<count], as: UTF8.self)
    }
}
