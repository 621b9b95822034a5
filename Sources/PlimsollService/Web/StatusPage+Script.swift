extension StatusPage {
    /// Script that polls each second and assigns values to the parts of the page.
    static let script = #"""
        const POLL_MILLISECONDS = 1000, PATIENCE_MILLISECONDS = 5000, SHOWN_ACTIONS = 16;
        const base = location.pathname.replace(/\/ui\/?$/, "");
        const place = id => document.getElementById(id);
        let past = [], last = null, lastAt = null, timer = null, isAsking = false;

        async function ask() {
          if (isAsking || document.hidden) return;
          isAsking = true;
          try {
            const answer = await fetch(base + "?actions=64", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MILLISECONDS) });
            if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
            show(await answer.json());
            lastAt = new Date();
            trouble(null);
          } catch (error) {
            trouble(error.name === "TimeoutError" ? `no answer within ${PATIENCE_MILLISECONDS / 1000} s` : error.message);
          }
          isAsking = false;
        }

        function trouble(reason) {
          const note = place("trouble");
          document.body.classList.toggle("stale", reason !== null && last !== null);
          note.hidden = reason === null;
          if (reason === null) {
            setText(place("connection"), "live, updated " + lastAt.toLocaleTimeString());
            return;
          }
          const since = lastAt ? `The figures are from ${lastAt.toLocaleTimeString()}.` : "Nothing has been received yet.";
          setText(note, `The server can't be reached: ${reason}. ${since} Trying again each second.`);
          setText(place("connection"), "not connected");
        }

        function show(status) {
          // Another process answers: its clock and its past are its own.
          if (last && status.atSeconds < last.atSeconds) past = [];
          last = status;
          const memory = status.memory;
          const point = { at: status.atSeconds };
          if (memory) {
            [point.usage, point.stall] = [memory.usageBytes, memory.stallShare];
            if (memory.limitBytes !== undefined && memory.availableBytes !== undefined) point.firm = memory.limitBytes - memory.availableBytes;
          }
          const sum = key => status.admissions.reduce((sum, one) => sum + one[key], 0);
          [point.admitted, point.refused] = [sum("admitted"), sum("refused") + sum("expired")];
          const before = past[past.length - 1], passed = before ? point.at - before.at : 0;
          if (passed > 0) {
            point.served = Math.max(0, point.admitted - before.admitted) / passed;
            point.shed = Math.max(0, point.refused - before.refused) / passed;
          }
          past.push(point);
          past = past.filter(point => status.atSeconds - point.at <= SHOWN_SECONDS + 5);
          const level = place("level");
          setText(level, status.level + (status.isDryRun ? ", dry run" : ""));
          level.className = "badge " + status.level;
          const life = status.lifecycle;
          setText(place("summary"), `${life.isReady ? "ready" : "not ready: " + life.reason}, ${life.state}`);
          showMemory(status, memory);
          showTasks(status.tasks);
          showHolders(status.holders);
          showShares(status);
          showRequests(status.requests);
          showAdmissions(status.admissions);
          showActions(status);
          drawTable(place("signals"), "Signals", [["Signal", ""], ["Live", ""], ["Why", ""]],
            status.signals.map(signal => [signal.name, signal.isLive ? "yes" : "no", signal.detail + (signal.remedy ? `. ${signal.remedy}` : "")]), "No signal is known.");
        }

        function showMemory(status, memory) {
          if (!memory) {
            setText(place("memory-note"), "The manager has not read memory yet. Check that it runs.");
            return;
          }
          const firm = past[past.length - 1].firm;
          const numbers = [
            ["Not reclaimable", bytes(firm)], ["Limit", memory.limitBytes === undefined ? "none known" : bytes(memory.limitBytes)],
            ["Available", bytes(memory.availableBytes)], ["Usage", bytes(memory.usageBytes)],
            ["Volatile", bytes(memory.volatileBytes)], ["Resident", bytes(memory.residentBytes)],
            ["Growth", bytes(memory.growthBytesPerSecond) + "/s"], ["Shortfall", bytes(memory.shortfallBytes)],
          ];
          const list = place("numbers");
          while (list.children.length < numbers.length) {
            const pair = document.createElement("div");
            pair.append(document.createElement("dt"), document.createElement("dd"));
            list.append(pair);
          }
          numbers.forEach(([name, value], index) => {
            setText(list.children[index].firstElementChild, name);
            setText(list.children[index].lastElementChild, value);
          });
          const lines = [["limit", memory.limitBytes], ["critical", memory.criticalLineBytes], ["warning", memory.warningLineBytes]]
            .filter(([, value]) => value !== undefined).map(([kind, value]) => ({ kind, value }));
          drawLegend(place("usage-legend"), [["usage", "not reclaimable " + bytes(firm)], ["whole", "usage " + bytes(memory.usageBytes)]].concat(
            lines.slice().reverse().map(({ kind, value }) => [kind, `${kind === "limit" ? "limit" : kind + " from"} ${bytes(value)}`])));
          const most = Math.max(...past.map(point => point.usage ?? 0), ...lines.map(line => line.value), 1);
          const marks = status.actions.filter(action => action.action !== "warn").map(action => action.beganSeconds);
          drawChart(place("usage-chart"), past, [{ key: "firm", kind: "usage", isFilled: true }, { key: "usage", kind: "whole" }], most, lines, marks, bytes,
            `The last two minutes: now ${bytes(firm)} not reclaimable, usage ${bytes(memory.usageBytes)}`
            + lines.map(({ kind, value }) => `, ${kind} ${bytes(value)}`).join("") + ".");
          const life = memory.timeLeftSeconds === undefined || memory.timeLeftSeconds > 600 ? "" : ` At this rate the limit is met in ${span(memory.timeLeftSeconds)}.`;
          const held = memory.heldUntilSeconds === undefined ? ""
            : ` The level is held until ${span(Math.max(0, memory.heldUntilSeconds - status.atSeconds))} from now, because of: ${memory.heldFor ?? "none"}.`;
          const why = (memory.evidence === "none" ? "" : ` Evidence: ${memory.evidence}.`) + held;
          const lack = memory.limitBytes === undefined ? "No limit is known, so there are no lines for warning and critical."
            : `The limit is of the kind "${memory.boundary}". The lines apply to memory that the kernel cannot reclaim: usage without volatile memory and clean page cache.`;
          setText(place("memory-note"), lack + why + life + (marks.length ? " Triangles mark actions." : ""));
          const stall = "share of the last 10 s in which a task waited for memory: " + percent(memory.stallShare);
          drawLegend(place("stall-legend"), [["usage", memory.stallSomeSeconds === undefined ? "this kernel reports no stall times" : stall]]);
          const worst = Math.max(0.1, ...past.map(point => point.stall ?? 0));
          drawChart(place("stall-chart"), past, [{ key: "stall", kind: "usage", isFilled: true }], worst, [], [], percent, "Stall, " + stall + ".");
        }

        function showTasks(tasks) {
          const counted = [[tasks.ended, "ended"], [tasks.expired, "expired in time"], [tasks.givenUp, "given up"], [tasks.leaked, "leaked"], [tasks.refused, "refused"]];
          setText(place("tasks-note"), `${tasks.running} running` + (tasks.expiring ? `, ${tasks.expiring} asked to stop` : "")
            + counted.filter(([count]) => count > 0).map(([count, what]) => `, ${whole(count)} ${what}`).join("") + ".");
          drawTable(place("tasks"), "Running background tasks", [["Task", ""], ["Age", "number"], ["Progress", ""], ["Done", "number"]],
            tasks.oldest.map(task => {
              const share = task.total > 0 ? task.completed / task.total : null;
              const name = task.name + (task.isExpiring ? " (asked to stop)" : "");
              return [name, span(task.ageSeconds), share === null ? "unknown" : { progress: share, text: `${task.name}: ${percent(share)}` },
                share === null ? "" : percent(share)];
            }), "No background task runs.");
        }

        function showHolders(holders) {
          drawTable(place("caches"), "Caches and other purgeables",
            [["Name", ""], ["Held", "number"], ["Limit", "number"], ["Entries", "number"], ["Hit ratio", "number"], ["Evicted", "number"], ["Purged", "number"],
             ["Kernel reclaimed", "number"], ["Rebuild cost", ""]],
            holders.map(holder => {
              const cache = holder.cache, asked = cache ? cache.hits + cache.misses : 0;
              const held = bytes(holder.heldBytes) + (holder.volatileBytes ? `, ${bytes(holder.volatileBytes)} volatile` : "");
              const counted = cache
                ? [whole(cache.entries), asked ? percent(cache.hits / asked) : "no look-ups yet", whole(cache.evictions), whole(cache.purged), whole(cache.droppedByKernel)]
                : ["", "not counted", "", "", ""];
              const silence = holder.unansweredSeconds === undefined ? "" : `, no answer for ${span(holder.unansweredSeconds)}`;
              return [(holder.group ? holder.group + "/" : "") + holder.name + silence, held, holder.limitBytes === undefined ? "none" : bytes(holder.limitBytes)]
                .concat(counted, [holder.rebuildCost]);
            }), "No purgeable is registered with this manager.");
        }

        function showShares(status) {
          const shared = status.holders.filter(holder => holder.worth), curves = place("curves");
          place("shares").hidden = shared.length === 0;
          while (curves.children.length > shared.length) curves.lastElementChild.remove();
          while (curves.children.length < shared.length) {
            const figure = document.createElement("figure"), chart = make("svg", { role: "img", height: 110 });
            figure.append(document.createElement("figcaption"), chart);
            curves.append(figure);
          }
          const effect = change => (change.savedLoadSecondsPerMinute < 0 ? "costs " : "saves ") + span(Math.abs(change.savedLoadSecondsPerMinute));
          shared.forEach(({ name, worth }, index) => {
            const [caption, chart] = curves.children[index].children;
            const text = `${name}: ${bytes(worth.shareBytes)}, best ${bytes(worth.targetBytes)}. 64 MiB more ${effect(worth.more)}, 64 MiB less ${effect(worth.less)}`;
            setText(caption, text);
            drawCurve(chart, worth, text);
          });
          const move = status.moves?.at(-1);
          setText(place("moves"), !move ? "No share has moved so far."
            : `Last move, ${span(Math.max(0, status.atSeconds - move.atSeconds))} ago: `
              + move.changes.map(one => `${one.name} from ${bytes(one.beforeBytes)} to ${bytes(one.afterBytes)}`).join(", ")
              + `, which saves ${percent(move.savedShare)} of the load time that memory can save.`);
        }

        function showRequests(requests) {
          const cancelled = requests ? requests.cancelledOverLimit + requests.cancelledForPressure : 0;
          place("requests-part").hidden = !requests || requests.running + cancelled === 0;
          if (place("requests-part").hidden) return;
          setText(place("requests-note"), `${whole(requests.running)} run and hold ${bytes(requests.heldBytes)}; `
            + `${whole(requests.cancelledOverLimit)} cancelled above their limits, ${whole(requests.cancelledForPressure)} because memory was short.`
            + (requests.isMetered ? "" : " The allocator does not count for requests: only charged bytes are shown."));
          const most = Math.max(1, ...requests.largest.map(one => one.heldBytes));
          drawTable(place("requests"), "Requests that hold most memory", [["Request", ""], ["Held", "number"], ["", ""], ["Most so far", "number"], ["Limit", "number"]],
            requests.largest.map(one => [one.name + (one.isCancelled ? " (cancelled)" : ""), bytes(one.heldBytes),
              { progress: one.heldBytes / most, text: `${one.name}: ${bytes(one.heldBytes)}` }, bytes(one.peakBytes),
              one.limitBytes === undefined ? "none" : bytes(one.limitBytes)]), "No request runs.");
        }

        function refusals(admission) {
          const counts = ["sheddable", "normal", "critical"]
            .map(priority => [priority, Object.values(admission.requests?.refused[priority] ?? {}).reduce((sum, count) => sum + count, 0)])
            .filter(([, count]) => count > 0).map(([priority, count]) => `${whole(count)} ${priority}`);
          return whole(admission.refused) + (counts.length ? ` (${counts.join(", ")})` : "");
        }

        function showAdmissions(admissions) {
          const point = past[past.length - 1], rate = value => value === undefined ? "not known yet" : Math.round(value).toLocaleString("en") + "/s";
          place("rates").hidden = admissions.length === 0;
          drawLegend(place("rates-legend"), [["usage", "admitted " + rate(point.served)], ["critical", "refused " + rate(point.shed)]]);
          const most = roundUp(Math.max(10, ...past.map(point => Math.max(point.served ?? 0, point.shed ?? 0))));
          drawChart(place("rates-chart"), past, [{ key: "served", kind: "usage", isFilled: true }, { key: "shed", kind: "critical" }], most, [], [],
            rate, `Work over the last two minutes: now admitted ${rate(point.served)}, refused ${rate(point.shed)}.`);
          drawTable(place("admissions"), "Admission of work",
            [["Name", ""], ["Running", "number"], ["May run", "number"], ["Waiting", "number"], ["Admitted", "number"], ["Refused", "number"], ["Timed out", "number"]],
            admissions.map(one => [one.name, whole(one.running), whole(one.limit), whole(one.waiting), whole(one.admitted), refusals(one), whole(one.expired)]),
            "No limiter is registered in the quiesce set.");
        }

        function showActions(status) {
          drawTable(place("actions"), "Actions", [["What", ""], ["Level", ""], ["Ago", "number"], ["Evidence", ""], ["Asked", "number"], ["Released", "number"],
            ["Fell by", "number"], ["Took", "number"], ["Outcome", ""]],
            status.actions.slice(-SHOWN_ACTIONS).reverse().map(action => {
              const frees = action.askedBytes || action.releasedBytes || action.releasedVolatileBytes || action.takenBytes;
              const given = action.releasedBytes + action.releasedVolatileBytes, taken = action.takenBytes ? `kernel reclaimed ${bytes(action.takenBytes)}` : "";
              const released = [given || !taken ? bytes(given) : "", taken].filter(text => text).join(", ");
              const why = action.origin === "pressure" ? action.evidence : action.origin;
              const what = action.action + (action.cancelledRequest === undefined ? "" : `: ${action.cancelledRequest} held ${bytes(action.cancelledBytes)}`);
              return [what + (action.mode === "live" ? "" : ` (${action.mode})`), { kind: action.level, text: action.level },
                span(Math.max(0, status.atSeconds - action.beganSeconds)), why, action.askedBytes ? bytes(action.askedBytes) : "", frees ? released : "",
                frees ? bytes(action.residentBeforeBytes - action.residentAfterBytes) : "", span(action.tookSeconds), action.outcome];
            }), "No action so far.");
        }

        for (const button of document.querySelectorAll("[data-change]")) {
          button.addEventListener("click", async () => {
            const result = place("change-result");
            try {
              const answer = await fetch(`${base}/${button.dataset.change}`, { method: "POST" });
              setText(result, await answer.text());
            } catch (error) {
              setText(result, `The server can't be reached: ${error.message}.`);
            }
            ask();
          });
        }

        function schedule() {
          clearInterval(timer);
          timer = document.hidden ? null : setInterval(ask, POLL_MILLISECONDS);
          if (document.hidden) setText(place("connection"), "paused while hidden"); else ask();
        }
        document.addEventListener("visibilitychange", schedule);
        window.addEventListener("resize", () => { if (last) showMemory(last, last.memory); });
        schedule();
        """#
}
