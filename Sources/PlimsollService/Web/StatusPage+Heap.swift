extension StatusPage {
    /// Script that asks for a census of the heap, and draws the types as a treemap.
    static let heapMap = #"""
        const MAPPED_TYPES = 60, CENSUS_PATIENCE_MILLISECONDS = 60000;

        // Squarified treemap (Bruls, Huizing and van Wijk, 2000): rows whose tiles are nearly square. Items come largest first.
        function tiles(items, x, y, width, height) {
          const placed = [], scale = width * height / items.reduce((sum, item) => sum + item.size, 0);
          let rest = items;
          while (rest.length && width > 0 && height > 0) {
            const side = Math.min(width, height), isUpright = width >= height;
            let count = 0, area = 0, worst = Infinity;
            for (const item of rest) {
              const whole = area + item.size * scale, most = rest[0].size * scale, least = item.size * scale;
              const ratio = Math.max(side * side * most / (whole * whole), whole * whole / (side * side * least));
              if (ratio > worst) break;
              [count, area, worst] = [count + 1, whole, ratio];
            }
            const depth = area / side;
            let along = 0;
            for (const item of rest.slice(0, count)) {
              const length = item.size * scale / depth;
              placed.push(isUpright ? { item, x, y: y + along, width: depth, height: length } : { item, x: x + along, y, width: length, height: depth });
              along += length;
            }
            if (isUpright) [x, width] = [x + depth, width - depth]; else [y, height] = [y + depth, height - depth];
            rest = rest.slice(count);
          }
          return placed;
        }

        function drawHeap(map, heap) {
          const census = heap.census, grown = new Map((heap.growth ?? []).map(row => [row.name, row.bytes + row.ownedBytes]));
          const items = census.rows.map(row => {
            const size = row.bytes + row.ownedBytes, growth = grown.get(row.name);
            const fill = row.capacityBytes ? `, ${percent(row.usedBytes / row.capacityBytes)} filled` : "";
            const more = growth === undefined ? "" : `, ${bytes(growth)} more than before`;
            return { name: row.name, size, kind: growth === undefined ? "" : " grown", text: `${bytes(size)} in ${whole(row.count)} of ${row.name}${fill}${more}` };
          });
          const shown = items.reduce((sum, item) => sum + item.size, 0);
          const others = [["other types", census.namedBytes + census.ownedBytes - shown], ["C and others, without a name", census.unnamedBytes]];
          for (const [name, size] of others) items.push({ name, size, kind: " unnamed", text: `${bytes(size)} of ${name}` });
          const width = Math.max(240, map.clientWidth), height = Number(map.getAttribute("height"));
          map.setAttribute("viewBox", `0 0 ${width} ${height}`);
          map.setAttribute("aria-label", items.slice(0, 8).map(item => item.text).join("; "));
          map.replaceChildren(...tiles(items.filter(item => item.size > 0).sort((a, b) => b.size - a.size), 0, 0, width, height).map(tile => {
            const group = make("g", { transform: `translate(${tile.x.toFixed(1)} ${tile.y.toFixed(1)})` });
            const title = make("title", {});
            title.textContent = tile.item.text;
            group.append(title, make("rect", { class: "tile" + tile.item.kind, width: tile.width.toFixed(1), height: tile.height.toFixed(1) }));
            const letters = Math.floor((tile.width - 10) / 6.6);
            const write = (text, line) => {
              const element = make("text", { x: 5, y: 15 * line });
              element.textContent = text.length > letters ? text.slice(0, letters - 1) + "…" : text;
              group.append(element);
            };
            if (letters >= 5 && tile.height >= 18) write(tile.item.name, 1);
            if (letters >= 8 && tile.height >= 34) write(bytes(tile.item.size), 2);
            return group;
          }));
        }

        async function countHeap() {
          const button = place("heap-count"), note = place("heap-note");
          button.disabled = true;
          setText(note, "counting");
          try {
            const answer = await fetch(`${base}/heap?rows=${MAPPED_TYPES}`, { cache: "no-store", signal: AbortSignal.timeout(CENSUS_PATIENCE_MILLISECONDS) });
            if (!answer.ok) throw new Error(await answer.text());
            const heap = await answer.json(), census = heap.census, used = census.namedBytes + census.ownedBytes + census.unnamedBytes;
            setText(note, `${percent(used ? (census.namedBytes + census.ownedBytes) / used : 1)} of ${bytes(used)} in use are named or owned; `
              + `registered caches and purgeables declare ${bytes(heap.declaredBytes)}; ${bytes(census.freeBytes)} free in malloc; `
              + `${whole(heap.types)} types, counted in ${span(census.processorSeconds)} at ${new Date().toLocaleTimeString()}.`
              + (heap.growth ? ` Marked: grown in the ${span(heap.growthSeconds)} since the census before.` : ""));
            // The property `hidden` is one of HTML elements alone.
            place("heap-map").removeAttribute("hidden");
            drawHeap(place("heap-map"), heap);
          } catch (error) {
            setText(note, `There is no census: ${error.message.trim()}`);
          }
          button.disabled = false;
        }
        place("heap-count").addEventListener("click", countHeap);
        // A link to the page with #heap counts at once.
        if (location.hash === "#heap") countHeap();
        """#
}
