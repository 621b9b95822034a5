extension StatusPage {
    /// Script for drawing: readable numbers, line charts over the last two minutes, and tables in which only changed
    /// text is updated.
    static let charts = #"""
        const SVG = "http://www.w3.org/2000/svg";
        const SHOWN_SECONDS = 120;

        function bytes(count) {
          if (count === undefined || count === null) return "unknown";
          if (Math.abs(count) > 1e18) return "no limit";
          const units = ["B", "KiB", "MiB", "GiB", "TiB"];
          let value = count, unit = 0;
          while (Math.abs(value) >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
          return (unit === 0 || Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(1)) + " " + units[unit];
        }

        function whole(count) { return Math.abs(count) > 1e15 ? "no limit" : count.toLocaleString("en"); }
        function percent(share) { return (share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0) + " %"; }

        function span(seconds) {
          if (seconds < 0.000001) return "below 1 µs";
          if (seconds < 0.001) return (seconds * 1e6).toFixed(0) + " µs";
          if (seconds < 1) return (seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0) + " ms";
          if (seconds < 120) return seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
          if (seconds < 7200) return (seconds / 60).toFixed(0) + " min";
          return (seconds / 3600).toFixed(1) + " h";
        }

        // To 1, 2 or 5 times a power of ten.
        function roundUp(value) {
          const power = 10 ** Math.floor(Math.log10(value));
          return power * [1, 2, 5, 10].find(factor => factor * power >= value);
        }

        function setText(element, text) { if (element.textContent !== text) element.textContent = text; }

        function make(name, attributes) {
          const element = document.createElementNS(SVG, name);
          for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
          return element;
        }

        function makeText(text, x, y, anchor) {
          const element = make("text", { x, y, "text-anchor": anchor });
          element.textContent = text;
          return element;
        }

        // A legend whose entries stay the same elements: [class, text].
        function drawLegend(place, entries) {
          while (place.children.length > entries.length) place.lastElementChild.remove();
          entries.forEach(([kind, text], index) => {
            let entry = place.children[index];
            if (!entry) {
              entry = document.createElement("span");
              const sample = make("svg", { viewBox: "0 0 26 8", height: 8, "aria-hidden": "true" });
              sample.append(make("path", { d: "M0 4H26" }));
              entry.append(sample, document.createElement("span"));
              place.append(entry);
            }
            entry.firstElementChild.firstElementChild.setAttribute("class", "line " + kind);
            setText(entry.lastElementChild, text);
          });
        }

        // points: [{ at, ... }]; series: [{ key, kind, isFilled }]; lines: [{ value, kind }]; marks: seconds at which something was done.
        function drawChart(place, points, series, top, lines, marks, label, name) {
          const width = Math.max(240, place.clientWidth), height = Number(place.getAttribute("height"));
          const left = 66, right = width - 6, roof = 8, floor = height - 22;
          const now = points.length ? points[points.length - 1].at : 0;
          const x = at => (right - (now - at) / SHOWN_SECONDS * (right - left)).toFixed(1);
          const y = value => (floor - Math.min(1, Math.max(0, value / top)) * (floor - roof)).toFixed(1);
          const parts = [];
          for (const share of [0, 0.5, 1]) {
            parts.push(make("path", { class: "grid", d: `M${left} ${y(share * top)}H${right}` }));
            parts.push(makeText(label(share * top), left - 6, Number(y(share * top)) + 4, "end"));
          }
          parts.push(makeText("120 s ago", left, height - 6, "start"));
          parts.push(makeText("60 s ago", (left + right) / 2, height - 6, "middle"), makeText("now", right, height - 6, "end"));
          const shown = points.filter(point => now - point.at <= SHOWN_SECONDS);
          for (const { key, kind, isFilled } of series) parts.push(...drawSeries(shown, key, kind, isFilled, x, y, floor));
          for (const { value, kind } of lines) parts.push(make("path", { class: "line " + kind, d: `M${left} ${y(value)}H${right}` }));
          for (const at of marks) {
            if (now - at < SHOWN_SECONDS && at <= now) parts.push(make("path", { class: "mark", d: `M${x(at)} ${floor - 8}l4 8h-8z` }));
          }
          place.setAttribute("viewBox", `0 0 ${width} ${height}`);
          place.setAttribute("aria-label", name);
          place.replaceChildren(...parts);
        }

        // One stroke for each stretch without a gap: while nobody looked there is nothing, not a line.
        function drawSeries(points, key, kind, isFilled, x, y, floor) {
          const stretches = [];
          let last = null;
          for (const point of points) {
            if (point[key] === undefined) continue;
            if (last === null || point.at - last > 4) stretches.push([]);
            stretches[stretches.length - 1].push(`${x(point.at)} ${y(point[key])}`);
            last = point.at;
          }
          const parts = [];
          for (const stretch of stretches) {
            const ends = [stretch[0], stretch[stretch.length - 1]].map(point => point.split(" ")[0]);
            if (isFilled) parts.push(make("path", { class: "area", d: `M${stretch.join("L")}L${ends[1]} ${floor}L${ends[0]} ${floor}Z` }));
            parts.push(make("path", { class: "line " + kind, d: "M" + stretch.join("L") }));
          }
          return parts;
        }

        // Misses by the size of a cache, today's share and the best.
        function drawCurve(place, worth, name) {
          const width = Math.max(200, place.clientWidth), height = Number(place.getAttribute("height"));
          const left = 44, right = width - 6, roof = 8, floor = height - 20;
          const largest = Math.max(1, ...worth.curve.map(point => point.bytes));
          const x = size => (left + Math.min(1, size / largest) * (right - left)).toFixed(1);
          const y = ratio => (floor - Math.min(1, Math.max(0, ratio)) * (floor - roof)).toFixed(1);
          const parts = [];
          for (const ratio of [0, 0.5, 1]) {
            parts.push(make("path", { class: "grid", d: `M${left} ${y(ratio)}H${right}` }));
            parts.push(makeText(percent(ratio), left - 6, Number(y(ratio)) + 4, "end"));
          }
          parts.push(makeText("0", left, height - 5, "start"), makeText(bytes(largest), right, height - 5, "end"));
          const points = [{ bytes: 0, missRatio: 1 }].concat(worth.curve);
          parts.push(make("path", { class: "line usage", d: "M" + points.map(point => `${x(point.bytes)} ${y(point.missRatio)}`).join("L") }));
          for (const [kind, size] of [["limit", worth.shareBytes], ["warning", worth.targetBytes]]) {
            parts.push(make("path", { class: "line " + kind, d: `M${x(size)} ${roof}V${floor}` }));
          }
          place.setAttribute("viewBox", `0 0 ${width} ${height}`);
          place.setAttribute("aria-label", name);
          place.replaceChildren(...parts);
        }

        // A table of texts in place: columns are [heading, class], rows lists of text or of { progress, text }. Without rows, a sentence that says so.
        function drawTable(place, caption, columns, rows, empty) {
          if (rows.length === 0) {
            if (place.firstElementChild?.tagName !== "P") {
              const note = document.createElement("p");
              note.className = "note";
              place.replaceChildren(note);
            }
            setText(place.firstElementChild, empty);
            return;
          }
          if (place.firstElementChild?.tagName !== "TABLE") place.replaceChildren(makeTable(caption, columns));
          const body = place.querySelector("tbody");
          while (body.children.length > rows.length) body.lastElementChild.remove();
          while (body.children.length < rows.length) body.append(makeRow(columns));
          rows.forEach((row, index) => row.forEach((cell, column) => drawCell(body.children[index].children[column], cell)));
        }

        function makeTable(caption, columns) {
          const table = document.createElement("table"), head = document.createElement("thead"), row = document.createElement("tr");
          // Named, as narrow screens lay tables out as blocks, which would take their meaning away.
          table.setAttribute("role", "table");
          const title = document.createElement("caption");
          title.className = "aside";
          title.textContent = caption;
          for (const [heading, kind] of columns) {
            const cell = document.createElement("th");
            cell.scope = "col";
            cell.setAttribute("role", "columnheader");
            cell.className = kind;
            cell.textContent = heading;
            row.append(cell);
          }
          row.setAttribute("role", "row");
          head.append(row);
          table.append(title, head, document.createElement("tbody"));
          return table;
        }

        function makeRow(columns) {
          const row = document.createElement("tr");
          row.setAttribute("role", "row");
          for (const [heading, kind] of columns) {
            const cell = document.createElement("td");
            cell.setAttribute("role", "cell");
            cell.className = kind;
            cell.dataset.label = heading;
            row.append(cell);
          }
          return row;
        }

        function drawCell(cell, content) {
          if (typeof content === "string") { setText(cell, content); return; }
          if (content.kind) { cell.className = content.kind; setText(cell, content.text); return; }
          let bar = cell.querySelector("progress");
          if (!bar) {
            bar = document.createElement("progress");
            cell.replaceChildren(bar);
          }
          bar.max = 1;
          bar.value = content.progress;
          bar.setAttribute("aria-label", content.text);
          bar.title = content.text;
        }
        """#
}
