import Plimsoll

/// An HTML page that draws a manager's status and polls the status each second. Needs no resources except itself and
/// the status.
///
/// `StatusPage+Style`, `StatusPage+Script`, `StatusPage+Charts` and `StatusPage+Heap` contain the text exactly as sent.
struct StatusPage {
    let title: String
    let allowsChanges: Bool

    /// The page, with a content security policy. The policy lets a browser run only the page's own script and style.
    /// Each answer has a fresh nonce that text shown on the page cannot know.
    var answer: AdminPages.Answer {
        let nonce = Self.makeNonce()
        let policy =
            "default-src 'none'; script-src 'nonce-\(nonce)'; style-src 'nonce-\(nonce)'; connect-src 'self'; img-src data:; base-uri 'none'; "
            + "form-action 'none'; frame-ancestors 'none'"
        return .init(
            200, text(nonce), type: "text/html; charset=utf-8",
            headers: [
                "content-security-policy": policy, "x-frame-options": "DENY",
                "cross-origin-opener-policy": "same-origin",
            ])
    }

    /// Returns 128 random bits in hexadecimal: characters that need no escaping anywhere.
    private static func makeNonce() -> String {
        let word = UInt128.random(in: .min ... .max)
        return String(word, radix: 16)
    }

    private func text(_ nonce: String) -> String {
        """
        <!doctype html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <meta name="color-scheme" content="light dark">
        <title>\(escaped(title))</title>
        <link rel="icon" href="data:,">
        <style nonce="\(nonce)">\(Self.style)</style>
        </head>
        <body>
        <header>
        <h1>\(escaped(title))</h1>
        <p id="level" class="badge" role="status">waiting for the first answer</p>
        <p id="summary"></p>
        <p id="connection">connecting</p>
        </header>
        <p id="trouble" role="alert" hidden></p>
        <noscript><p class="trouble">This page draws with JavaScript, which is switched off. The numbers are at <a href="../plimsoll">/plimsoll</a> as JSON.</p></noscript>
        <main>
        \(Self.sections)
        \(allowsChanges ? Self.changes : "")
        </main>
        <script nonce="\(nonce)">
        "use strict";
        \(Self.charts)
        \(Self.script)
        \(Self.heapMap)
        </script>
        </body>
        </html>

        """
    }

    private static let sections = """
        <section class="wide" aria-labelledby="memory-title">
        <h2 id="memory-title">Memory</h2>
        <dl id="numbers"></dl>
        <figure>
        <figcaption id="usage-legend" class="legend"></figcaption>
        <svg id="usage-chart" role="img" height="220"></svg>
        </figure>
        <p id="memory-note" class="note"></p>
        </section>
        <section aria-labelledby="stall-title">
        <h2 id="stall-title">Stall</h2>
        <figure>
        <figcaption id="stall-legend" class="legend"></figcaption>
        <svg id="stall-chart" role="img" height="120"></svg>
        </figure>
        </section>
        <section aria-labelledby="tasks-title">
        <h2 id="tasks-title">Background tasks</h2>
        <p id="tasks-note" class="note"></p>
        <div id="tasks"></div>
        </section>
        <section class="wide" aria-labelledby="caches-title">
        <h2 id="caches-title">Caches and other purgeables</h2>
        <div id="caches"></div>
        <div id="shares" hidden>
        <h3>Shares of memory</h3>
        <p class="note">The curve shows the part of the requests that miss, by the size of the cache. The upright line is today's share, the dashed line the best. Times saved are load times a minute.</p>
        <div id="curves" class="curves"></div>
        <p id="moves" class="note"></p>
        </div>
        </section>
        <section class="wide" id="requests-part" aria-labelledby="requests-title" hidden>
        <h2 id="requests-title">Requests that hold most memory</h2>
        <p id="requests-note" class="note"></p>
        <div id="requests"></div>
        </section>
        <section class="wide" aria-labelledby="admissions-title">
        <h2 id="admissions-title">Admission of work</h2>
        <figure id="rates" hidden>
        <figcaption id="rates-legend" class="legend"></figcaption>
        <svg id="rates-chart" role="img" height="120"></svg>
        </figure>
        <div id="admissions"></div>
        </section>
        <section class="wide" aria-labelledby="heap-title">
        <h2 id="heap-title">Heap by type</h2>
        <p class="buttons"><button type="button" id="heap-count">Count the objects</button></p>
        <p id="heap-note" class="note" role="status"></p>
        <svg id="heap-map" role="img" height="340" hidden></svg>
        </section>
        <section class="wide" aria-labelledby="actions-title">
        <h2 id="actions-title">The last actions, newest first</h2>
        <div id="actions"></div>
        </section>
        <section class="wide" aria-labelledby="signals-title">
        <h2 id="signals-title">Signals</h2>
        <div id="signals"></div>
        </section>
        """

    private static let changes = """
        <section class="wide" aria-labelledby="changes-title">
        <h2 id="changes-title">Operator</h2>
        <p class="buttons">
        <button type="button" data-change="release">Release all that can be rebuilt</button>
        <button type="button" data-change="simulate?level=warning&amp;seconds=10">Simulate a warning for 10 s</button>
        <button type="button" data-change="simulate?level=critical&amp;seconds=10">Simulate a critical level for 10 s</button>
        <button type="button" data-change="simulate?level=normal">End the simulation</button>
        </p>
        <p id="change-result" class="note" role="status"></p>
        </section>
        """
}
