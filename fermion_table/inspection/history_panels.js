// Around the history: facts, search, legend, details, levels of trees, and the table of snapshots.
const newest = number - 1;

function drawFacts() {
  const shown = tableFacts.shown;
  document.body.prepend(
    make("h1", {}, clean(tableFacts.location)),
    facts([["snapshots", count(number)], ["branches", count(branches.length)], ["tags", count(tags.length)],
      ["columns", count(tableFacts.columns)], [`${rowWord}s`, shown < 0 ? "" : count(rowsOf(shown))],
      ["files", shown < 0 ? "" : count(snapshots.total_files[shown])],
      ["size", shown < 0 ? "" : size(snapshots.total_bytes[shown])],
      ["at", shown < 0 ? "" : `${label(shown)}, ${timeText(shown)} UTC`]]),
  );
  if (!tableFacts.is_cut) return;
  section(make("p", {}, "Older snapshots are not shown: they have expired, or are more than the page shows."))
    .classList.add("notice");
}

const searchBox = make("input", { type: "search", id: "search", autocomplete: "off", spellcheck: false,
  placeholder: "Id, kind, author, message, tag" });
const searchSaid = make("span", { className: "soft", id: "found", role: "status" });
const searched = snapshots.id.map((id, at) => [id, kindOf(at), branchOf(at), texts[snapshots.author[at]],
  texts[snapshots.message[at]], texts[snapshots.changes[at]], ...tags.filter((tag) => flags.has(at) && tag.snapshot === at).map((tag) => tag.name)]
  .join("\n").toLowerCase());

function search() {
  const wanted = searchBox.value.toLowerCase();
  state.rows = ROWS_STEP;
  state.found = null;
  if (wanted !== "") {
    state.found = new Set();
    searched.forEach((each, at) => { if (each.includes(wanted)) state.found.add(at); });
  }
  searchSaid.textContent = state.found ? `${counted(state.found.size, "snapshot")} found` : "";
  picture.later();
  showSnapshots();
}

let nextHit = 0;
searchBox.addEventListener("input", () => { nextHit = 0; search(); });
searchBox.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !state.found || !state.found.size) return;
  const hits = [...state.found].reverse();
  zoomTo(hits[nextHit % hits.length]);
  nextHit += 1;
});

const strip = make("canvas", { id: "overview", className: "overview" });
strip.setAttribute("aria-hidden", "true");
const strips = overview(strip, axis, MARGINS, (context, left, width, height) => {
  const drawn = new Set();
  for (let at = 0; at < number; at += 1) {
    const x = left + ((places[at] - 0.5) / axis.length) * width;
    const key = `${Math.round(x)}|${laneOf[at]}|${snapshots.kind[at]}`;
    if (drawn.has(key)) continue;
    drawn.add(key);
    context.fillStyle = kindColour(kindOf(at));
    context.fillRect(x, 3 + (laneOf[at] % 4) * 7, Math.max(width / number - 1, 1), 6);
  }
  context.fillStyle = inks.line;
  context.fillRect(left, height - 1, width, 1);
});

function drawTools() {
  const kinds = new Map();
  snapshots.kind.forEach((kind) => kinds.set(texts[kind], (kinds.get(texts[kind]) ?? 0) + 1));
  const legend = make("ul", { className: "legend", id: "legend" },
    ...[...kinds].map(([kind, times]) => make("li", {}, swatch(kindColour(kind)), `${kind} `,
      make("span", { className: "soft" }, count(times)))));
  const choices = [choice("Across", "along", [["order", "snapshots in order"], ["time", "time"]], (value) => {
    state.along = value;
    placeSnapshots();
    strips.later();
    picture.later();
  })];
  if (branches.length > 1) {
    const names = choice("Sizes of", "branch", branches.map((each) => [each.name, clean(each.name)]), (value) => {
      state.branch = value;
      line = lineOf(value);
      picture.later();
    });
    names.querySelector("select").value = state.branch;
    choices.push(names);
  }
  section(
    make("div", { className: "tools" }, make("h2", {}, "Snapshots"),
      make("label", { htmlFor: "search" }, "Search", searchBox), searchSaid, ...choices,
      zoomButtons(axis, place.centre)),
    make("figure", {}, canvas, strip, legend, make("figcaption", {},
      "A dot is a snapshot. A dashed line brings a branch into the one that it left. Ctrl and wheel, double click, + and "
      + "− zoom; drag moves; a click shows a snapshot.")));
}

const details = make("section", { id: "details" },
  make("p", { className: "soft" }, "Choose a snapshot to see what its commit did."));
details.setAttribute("aria-live", "polite");

function showDetails() {
  const at = state.selected;
  const parent = snapshots.parent[at];
  details.replaceChildren(
    make("div", { className: "tools" }, make("h2", {}, `${label(at)} · ${kindOf(at)}`)),
    make("div", { className: "two" },
      make("div", {}, facts([["committed", `${timeText(at)} UTC`], ["branch", textOf("branch", at)],
        ["author", textOf("author", at)], ["tags", (flags.get(at) ?? []).join(", ")],
        ["parent", parent < 0 ? "" : label(parent)], ["schema", String(snapshots.schema[at])]]),
      snapshots.brought[at] < 0 ? null : make("p", {}, `brings ${label(snapshots.brought[at])}`)),
      make("div", {}, ...changeText(at).map((each) => make("p", {}, each)),
        make("p", {}, `${counted(rowsOf(at), rowWord)} in ${counted(snapshots.total_files[at], "file")}, `
          + `${size(snapshots.total_bytes[at])} afterwards`),
        texts[snapshots.message[at]] ? make("p", { className: "soft" }, textOf("message", at)) : null)));
}

const list = make("div", { id: "snapshots" });
function showSnapshots() {
  const shown = [];
  for (let at = newest; at >= 0; at -= 1) if (!state.found || state.found.has(at)) shown.push(at);
  const rows = shown.slice(0, state.rows).map((at) => [
    button(label(at), `Show ${label(at)} in the graph`, () => zoomTo(at)), make("span", { className: "line" }, timeText(at)),
    make("span", {}, swatchIn(kindColour(kindOf(at))), ` ${kindOf(at)}`), changeText(at).join("; "),
    size(snapshots.total_bytes[at]), textOf("author", at),
    [...(flags.get(at) ?? []).map((tag) => `[${tag}]`), textOf("message", at)].join(" ")]);
  const grid = table(["Snapshot", "Time (UTC)", "Kind", "Change", "Size", "Author", "Message"], rows, [4]);
  grid.querySelectorAll("td button").forEach((each) => { each.className = "link"; });
  const rest = shown.length - rows.length;
  list.replaceChildren(shown.length ? grid : make("p", { className: "soft" }, "No snapshot matches."),
    ...(rest > 0 ? [button(`${count(rest)} more`, "Show more snapshots", () => {
      state.rows += ROWS_STEP * 4;
      showSnapshots();
    })] : []));
}

function swatchIn(colour) {
  const found = swatch(colour);
  found.style.display = "inline-block";
  return found;
}

// Levels of the trees of a primary-key table: buckets across, levels down, runs of level 0 apart.
const treeCanvas = make("canvas", { id: "trees", tabIndex: 0 });
const [LEVEL, EMPTY_LEVEL, TREE_HEAD] = [40, 18, 40];
function drawTrees() {
  const { runs, partitions, partition, bucket, left_out: leftOut } = trees;
  const numTrees = bucket.length;
  const treeLabel = (tree) => [partitions[partition[tree]], `bucket ${bucket[tree]}`].filter((each) => each).map(clean).join(" · ");
  const bottom = runs.level.reduce((most, each) => Math.max(most, each), 0);
  const byTree = Array.from({ length: numTrees }, () => []);
  runs.tree.forEach((tree, run) => byTree[tree].push(run));
  const bytesMost = runs.bytes.reduce((most, each) => Math.max(most, each), 1);
  const treeAxis = new Axis(Math.max(numTrees, 1), 1);
  const tops = [TREE_HEAD];
  for (let level = 0; level <= bottom; level += 1) {
    tops.push(tops[level] + (runs.level.includes(level) ? LEVEL : EMPTY_LEVEL));
  }
  const colour = (bytes) => ramp(Math.sqrt(bytes / bytesMost), [inks.low, inks.middle, inks.high]);
  const cellsOf = (tree, level) => byTree[tree].filter((run) => runs.level[run] === level);
  const span = (tree, width) => [tree, tree + 1].map((edge) =>
    LEFT + ((edge - treeAxis.start) / treeAxis.span) * (width - LEFT));
  const drawing = new Picture(treeCanvas, () => tops[bottom + 1], (context, width) => {
    context.textBaseline = "middle";
    for (let level = 0; level <= bottom; level += 1) {
      context.fillStyle = inks.soft;
      context.fillText(`level ${level}`, 0, (tops[level] + tops[level + 1]) / 2);
    }
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT, 1e4);
    context.clip();
    let named = LEFT;
    for (let tree = Math.floor(treeAxis.start); tree < Math.min(Math.ceil(treeAxis.stop), numTrees); tree += 1) {
      const [left, right] = span(tree, width);
      for (let level = 0; level <= bottom; level += 1) {
        const found = cellsOf(tree, level);
        const [top, tall] = [tops[level], tops[level + 1] - tops[level] - 3];
        context.fillStyle = inks.empty;
        context.fillRect(left, top, Math.max(right - left - 2, 1), tall);
        found.forEach((run, place) => {
          const high = tall / found.length;
          context.fillStyle = colour(runs.bytes[run]);
          context.fillRect(left, top + place * high, Math.max(right - left - 2, 1), Math.max(high - (high > 3 ? 1 : 0), 0.5));
        });
        if (!found.length || right - left < 66) continue;
        const whole = sum(found.map((run) => runs.bytes[run]));
        const text = readable(context, `${level ? "" : `${counted(found.length, "run")}, `}${size(whole)}`, right - left - 14);
        const wide = context.measureText(text).width;
        context.fillStyle = inks.card;
        context.beginPath();
        context.roundRect(left + 5, top + LEVEL / 2 - 11, wide + 8, 18, 4);
        context.fill();
        context.fillStyle = inks.ink;
        context.fillText(text, left + 9, top + LEVEL / 2 - 2);
      }
      context.fillStyle = inks.ink;
      const isFirst = tree === 0 || partition[tree] !== partition[tree - 1];
      if (isFirst && left >= named && partitions[partition[tree]] !== "") {
        const text = readable(context, clean(partitions[partition[tree]]), Math.max(right - left, 160));
        context.fillText(text, left + 1, 10);
        named = left + context.measureText(text).width + 12;
      }
      context.fillStyle = inks.soft;
      if (right - left > 26) context.fillText(readable(context, `bucket ${bucket[tree]}`, right - left - 4), left + 1, 29);
    }
    context.restore();
    treeCanvas.dataset.trees = numTrees;
  });
  treeAxis.watching.push(() => drawing.later());
  const treeAt = (event) => {
    const box = treeCanvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - LEFT, event.clientY - box.top];
    const tree = Math.floor(treeAxis.start + (x / (box.width - LEFT)) * treeAxis.span);
    const level = tops.findIndex((each) => each > y) - 1;
    return x < 0 || level < 0 || tree >= numTrees ? null : [tree, level];
  };
  steer(treeCanvas, treeAxis, { left: LEFT, right: 0 }, {
    hover(event) {
      const found = treeAt(event);
      if (!found) { hideTip(); return; }
      const cells = cellsOf(...found);
      const total = (name) => sum(cells.map((run) => runs[name][run]));
      showTip(event, `${treeLabel(found[0])} · level ${found[1]}`, cells.length ? [
        `${counted(cells.length, "sorted run")}, ${counted(total("files"), "file")}`,
        `${counted(total("rows"), "row")}, ${size(total("bytes"))}`,
        total("deleted") ? `${counted(total("deleted"), "row")} deleted` : ""].filter((each) => each) : ["no files"]);
    },
    press() {}, leave() {}, centre: () => (treeAxis.start + treeAxis.stop) / 2,
    step(across) { treeAxis.move((across * treeAxis.span) / 8); }, end(side) { treeAxis.move(side * numTrees); },
  });
  treeCanvas.setAttribute("role", "img");
  treeCanvas.setAttribute("aria-label", `Levels of ${counted(numTrees, "bucket")}; the table below has the sums`);
  const rows = Array.from({ length: bottom + 1 }, (_, level) => {
    const own = runs.level.map((each, run) => [each, run]).filter(([each]) => each === level).map(([, run]) => run);
    return [`level ${level}`, count(new Set(own.map((run) => runs.tree[run])).size), count(own.length),
      ...["files", "rows"].map((name) => count(sum(own.map((run) => runs[name][run])))), size(sum(own.map((run) => runs.bytes[run])))];
  });
  section(make("div", { className: "tools" }, make("h2", {}, `Levels at ${label(tableFacts.shown)}`), zoomButtons(treeAxis, () =>
    (treeAxis.start + treeAxis.stop) / 2)),
  numTrees ? make("figure", {}, treeCanvas, make("figcaption", {}, "A column is the tree of a bucket. A bar is a sorted run: each commit "
    + "adds one to level 0, newest above; compaction merges them into one run of each level below. Colours show bytes."
    + `${leftOut ? ` The ${count(leftOut)} smallest buckets are not shown.` : ""}`)) : make("p", { className: "soft" }, "The table has no rows."),
  numTrees ? table(["Level", "Buckets", "Sorted runs", "Files", "Rows", "Bytes"], rows, [1, 2, 3, 4, 5]) : "");
  return drawing;
}

drawFacts();
drawTools();
document.body.append(details);
const treePicture = trees ? drawTrees() : null;
section(make("div", { className: "tools" }, make("h2", {}, "All snapshots")), list);
showSnapshots();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readInks();
  [picture, strips, treePicture].forEach((each) => each?.later());
});
