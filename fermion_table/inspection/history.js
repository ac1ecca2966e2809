// The history of a table: snapshots as a graph with a lane for each branch, and sizes below.
const { table: tableFacts, snapshots, branches, tags, texts, trees } = data;
const number = snapshots.id.length;
const LEFT = 104;
const RIGHT = 8;
const MARGINS = { left: LEFT, right: RIGHT };
const LANE = 34;
const CHART = 74;
const BOTTOM = 22;
const ROWS_STEP = 50;
const KIND_COLOURS = { append: 0, compact: 1, upsert: 2, delete: 4, overwrite: 3, schema: 6, restore: 5, create: 7 };

const textOf = (column, at) => clean(texts[snapshots[column][at]]);
const kindOf = (at) => texts[snapshots.kind[at]];
const branchOf = (at) => texts[snapshots.branch[at]];
const kindColour = (kind) => PALETTE[KIND_COLOURS[kind] ?? 9];
const rowsOf = (at) => snapshots.total_rows[at] - snapshots.total_rows_deleted[at];
const timeText = (at) => new Date(snapshots.time_ms[at]).toISOString().replace("T", " ").slice(0, 19);
const label = (at) => `snapshot ${snapshots.id[at]}${branchOf(at) === "main" ? "" : ` (${textOf("branch", at)})`}`;
const rowWord = tableFacts.primary_key ? "stored row" : "row";

// A lane for each branch with snapshots of its own, those of deleted branches that tags keep as well.
const laneNames = [...new Set(snapshots.branch.map((each) => texts[each]))];
const laneOf = snapshots.branch.map((each) => laneNames.indexOf(texts[each]));
const flags = new Map();
tags.forEach((tag) => flags.set(tag.snapshot, [...(flags.get(tag.snapshot) ?? []), clean(tag.name)]));
const heads = new Map();
branches.forEach((branch) => heads.set(branch.head, [...(heads.get(branch.head) ?? []), clean(branch.name)]));

// Names stand in up to three rows above the lanes.
const FLAGS = 8 + 21 * Math.min(tags.length + branches.length, 3);
const state = { along: "order", branch: tableFacts.branch, selected: null, found: null, rows: ROWS_STEP };
const axis = new Axis(Math.max(number, 1), Math.min(8, Math.max(number, 1)));
let places = [];
function placeSnapshots() {
  const [first, last] = [snapshots.time_ms[0], snapshots.time_ms[number - 1]];
  places = snapshots.time_ms.map((time, at) => (state.along === "order" || last === first ? at + 0.5
    : 0.5 + ((time - first) / (last - first)) * (number - 1)));
}
placeSnapshots();

// The snapshots of a branch from its first ancestor on: what its sizes were over time.
function lineOf(name) {
  const found = [];
  let at = (branches.find((each) => each.name === name) ?? { head: tableFacts.shown }).head;
  while (at >= 0 && found.length <= number) {
    found.push(at);
    at = snapshots.parent[at];
  }
  return found.reverse();
}
let line = lineOf(state.branch);

const canvas = make("canvas", { id: "history", tabIndex: 0 });
canvas.setAttribute("role", "application");
canvas.setAttribute("aria-label", "History of the table. Arrow keys move between snapshots, plus and minus zoom, "
  + "0 shows everything. The same is in the table below.");
const lanesHeight = () => Math.min(laneNames.length, 12) * LANE;
const CHARTS = [
  { name: "bytes", of: (at) => snapshots.total_bytes[at], text: size },
  { name: `${rowWord}s`, of: rowsOf, text: count },
  { name: "files", of: (at) => snapshots.total_files[at], text: count },
];
const laneY = (lane) => FLAGS + (Math.min(lane, 11) + 0.5) * LANE;
// Of a history within a day the time of day says more than the day.
const isShort = number > 0 && snapshots.time_ms[number - 1] - snapshots.time_ms[0] < 86_400_000;
const xOf = (at, width) => LEFT + ((places[at] - axis.start) / axis.span) * (width - LEFT - RIGHT);

function visible() {
  let [low, high] = [0, number];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle] < axis.start) low = middle + 1; else high = middle;
  }
  const first = low;
  high = number;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle] <= axis.stop) low = middle + 1; else high = middle;
  }
  return [first, low];
}

function drawHistory(context, width, height) {
  const [first, last] = visible();
  const laneEnds = FLAGS + lanesHeight();
  context.save();
  context.beginPath();
  context.rect(LEFT - 4, 0, width - LEFT + 4, height);
  context.clip();
  drawEdges(context, width, first, last);
  const drawn = drawNodes(context, width, first, last);
  drawFlags(context, width, first, last);
  CHARTS.forEach((chart, place) => drawChart(context, width, laneEnds + place * CHART, chart, first, last));
  drawSelected(context, width, height);
  drawTimes(context, width, height, first, last);
  context.restore();
  drawLabels(context, laneEnds);
  Object.assign(canvas.dataset, { first, last, drawn, along: state.along, branch: state.branch });
}

function drawEdges(context, width, first, last) {
  context.lineWidth = 1.5;
  const ends = new Map();
  for (let at = 0; at < number; at += 1) {
    const parent = snapshots.parent[at];
    if (parent < 0 || laneOf[parent] !== laneOf[at]) continue;
    const [begin] = ends.get(laneOf[at]) ?? [parent];
    ends.set(laneOf[at], [begin, at]);
  }
  context.strokeStyle = inks.soft;
  for (const [lane, [begin, end]] of ends) curve(context, xOf(begin, width), laneY(lane), xOf(end, width), laneY(lane));
  for (let at = 0; at < number; at += 1) {
    const parent = snapshots.parent[at];
    if (parent >= 0 && laneOf[parent] !== laneOf[at] && parent <= last && at >= first - 1) {
      curve(context, xOf(parent, width), laneY(laneOf[parent]), xOf(at, width), laneY(laneOf[at]));
    }
    const brought = snapshots.brought[at];
    if (brought < 0 || brought > last || at < first - 1) continue;
    context.setLineDash([4, 3]);
    context.strokeStyle = inks.accent;
    curve(context, xOf(brought, width), laneY(laneOf[brought]), xOf(at, width), laneY(laneOf[at]));
    context.setLineDash([]);
    context.strokeStyle = inks.soft;
  }
}

function curve(context, fromX, fromY, toX, toY) {
  context.beginPath();
  context.moveTo(fromX, fromY);
  const bend = Math.min((toX - fromX) / 2, 40);
  context.bezierCurveTo(fromX + bend, fromY, toX - bend, toY, toX, toY);
  context.stroke();
}

// A dot for each snapshot; where they are closer than that a mark for each pixel of a lane.
function drawNodes(context, width, first, last) {
  const room = (width - LEFT) / axis.span;
  const radius = Math.min(Math.max(room * 0.36, 1.5), 8);
  const marks = new Map();
  for (let at = first; at < last; at += 1) {
    const x = xOf(at, width);
    const key = radius > 2.5 && state.along === "order" ? at : `${laneOf[at]}|${Math.round(x / 2)}`;
    const mark = marks.get(key) ?? { x, lane: laneOf[at], kinds: new Map(), hit: false };
    mark.kinds.set(kindOf(at), (mark.kinds.get(kindOf(at)) ?? 0) + 1);
    mark.hit ||= !state.found || state.found.has(at);
    marks.set(key, mark);
  }
  for (const { x, lane, kinds, hit } of marks.values()) {
    context.globalAlpha = hit ? 1 : 0.2;
    const total = sum([...kinds.values()]);
    if (total === 1 && (radius > 2.5 || marks.size < 200)) {
      context.beginPath();
      context.arc(x, laneY(lane), Math.max(radius, 4), 0, 2 * Math.PI);
      context.fillStyle = kindColour([...kinds.keys()][0]);
      context.fill();
      context.lineWidth = 1.5;
      context.strokeStyle = inks.card;
      context.stroke();
      continue;
    }
    let top = laneY(lane) - 9;
    for (const [kind, part] of [...kinds].sort()) {
      context.fillStyle = kindColour(kind);
      context.fillRect(x - 1, top, 2, (18 * part) / total);
      top += (18 * part) / total;
    }
  }
  context.globalAlpha = 1;
  return marks.size;
}

// Names of tags and of branches' heads, in rows above the lanes, where there is room.
function drawFlags(context, width, first, last) {
  const ends = [LEFT, LEFT, LEFT];
  context.textBaseline = "middle";
  const named = [...new Set([...flags.keys(), ...heads.keys()])].filter((at) => at >= first && at < last);
  for (const at of named.sort((one, other) => one - other)) {
    const words = [...(flags.get(at) ?? []).map((tag) => [tag, inks.mark]),
      ...(heads.get(at) ?? []).map((branch) => [branch, inks.accent])];
    for (const [word, colour] of words) {
      const text = readable(context, word, 130);
      const wide = context.measureText(text).width + 12;
      const x = Math.min(Math.max(xOf(at, width) - 4, LEFT), width - wide - 2);
      const row = ends.findIndex((end) => end <= x);
      if (row < 0) continue;
      ends[row] = x + wide + 4;
      const y = 4 + row * 21;
      context.strokeStyle = colour;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(xOf(at, width), y + 17);
      context.lineTo(xOf(at, width), laneY(laneOf[at]));
      context.stroke();
      context.fillStyle = colour;
      context.beginPath();
      context.roundRect(x, y, wide, 17, 4);
      context.fill();
      context.fillStyle = inks.card;
      context.fillText(text, x + 6, y + 9);
    }
  }
}

// Where a size changes: its place, and the least, greatest and last value of those that share it.
function steps(shown, chart, width) {
  const found = [];
  for (const at of shown) {
    const x = Math.round(xOf(at, width));
    const value = chart.of(at);
    const before = found[found.length - 1];
    if (before && before[0] === x) {
      [before[1], before[2], before[3]] = [Math.min(before[1], value), Math.max(before[2], value), value];
    } else {
      found.push([x, value, value, value]);
    }
  }
  return found;
}

function drawChart(context, width, top, chart, first, last) {
  const inside = line.filter((at) => at >= first - 1 && at <= last);
  const before = line.filter((at) => at < first - 1).pop();
  const shown = before === undefined ? inside : [before, ...inside];
  const most = Math.max(...lineMost(chart), 1);
  const base = top + CHART - 8;
  const yOf = (value) => base - (value / most) * (CHART - 26);
  context.strokeStyle = inks.line;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(LEFT, base + 0.5);
  context.lineTo(width, base + 0.5);
  context.stroke();
  if (!shown.length) return;
  const points = steps(shown, chart, width);
  context.beginPath();
  context.moveTo(points[0][0], base);
  let level = points[0][1];
  for (const [x, lowest, highest, latest] of points) {
    const [low, high, next] = [lowest, highest, latest].map(yOf);
    context.lineTo(x, yOf(level));
    if (lowest !== highest) {
      context.lineTo(x, low);
      context.lineTo(x, high);
    }
    context.lineTo(x, next);
    level = latest;
  }
  const isLast = shown[shown.length - 1] === line[line.length - 1];
  const end = isLast ? Math.min(points[points.length - 1][0] + 12, width) : width;
  context.lineTo(end, yOf(level));
  context.lineTo(end, base);
  context.closePath();
  context.fillStyle = inks.middle;
  context.globalAlpha = 0.3;
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = inks.middle;
  context.stroke();
}

const lineMost = (chart) => [line.reduce((most, at) => Math.max(most, chart.of(at)), 0)];

function drawSelected(context, width, height) {
  if (state.selected === null) return;
  const x = xOf(state.selected, width);
  context.strokeStyle = inks.mark;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x, FLAGS);
  context.lineTo(x, height - BOTTOM);
  context.stroke();
  context.lineWidth = 2.5;
  context.beginPath();
  context.arc(x, laneY(laneOf[state.selected]), 10, 0, 2 * Math.PI);
  context.stroke();
}

function drawTimes(context, width, height, first, last) {
  context.fillStyle = inks.soft;
  context.textBaseline = "alphabetic";
  let free = LEFT;
  for (let at = first; at < last; at += 1) {
    const x = xOf(at, width);
    if (x < free) continue;
    const text = isShort ? timeText(at).slice(11) : timeText(at).slice(0, 16);
    const wide = context.measureText(text).width;
    if (x + wide > width) break;
    context.fillText(text, x, height - 6);
    free = x + wide + 40;
  }
}

function drawLabels(context, laneEnds) {
  context.textBaseline = "middle";
  laneNames.slice(0, 12).forEach((name, lane) => {
    context.fillStyle = name === state.branch ? inks.ink : inks.soft;
    const rest = lane === 11 && laneNames.length > 12 ? `${count(laneNames.length - 11)} more` : clean(name);
    context.fillText(readable(context, rest, LEFT - 14), 0, laneY(lane));
  });
  CHARTS.forEach((chart, place) => {
    const top = laneEnds + place * CHART;
    context.fillStyle = inks.soft;
    context.fillText(chart.name, 0, top + CHART - 24);
    context.fillText(`max ${readable(context, chart.text(lineMost(chart)[0]), LEFT - 40)}`, 0, top + CHART - 8);
  });
}

const picture = new Picture(canvas, () => FLAGS + lanesHeight() + CHARTS.length * CHART + BOTTOM, drawHistory);
axis.watching.push(() => picture.later());

function snapshotAt(event) {
  const box = canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  if (x < LEFT - 8 || !number) return null;
  const lane = Math.floor((y - FLAGS) / LANE);
  const [first, last] = visible();
  let [best, distance] = [null, y < FLAGS + lanesHeight() ? 14 : 1e9];
  for (let at = first; at < last; at += 1) {
    if (y >= FLAGS && y < FLAGS + lanesHeight() && Math.min(laneOf[at], 11) !== lane) continue;
    const away = Math.abs(xOf(at, box.width) - x);
    if (away < distance) [best, distance] = [at, away];
  }
  return best;
}

const changeText = (at) => {
  const said = [textOf("changes", at)].filter((each) => each);
  for (const [sign, what] of [["+", "added"], ["−", "removed"]]) {
    if (snapshots[`files_${what}`][at]) {
      said.push(`${sign}${counted(snapshots[`rows_${what}`][at], rowWord)} in `
        + `${counted(snapshots[`files_${what}`][at], "file")}, ${size(snapshots[`bytes_${what}`][at])}`);
    }
  }
  const deleted = snapshots.rows_deleted[at];
  if (deleted) said.push(`${counted(Math.abs(deleted), "row")} ${deleted > 0 ? "deleted" : "restored"} in files that stay`);
  return said.length ? said : ["no files changed"];
};

const place = {
  hover(event) {
    const at = snapshotAt(event);
    canvas.style.cursor = at === null ? "default" : "pointer";
    if (at === null) { hideTip(); return; }
    showTip(event, `${label(at)}: ${kindOf(at)}`, [`${timeText(at)} UTC`,
      ...(flags.get(at) ?? []).map((tag) => `tag ${tag}`), ...changeText(at),
      `${counted(rowsOf(at), rowWord)} in ${counted(snapshots.total_files[at], "file")}, ${size(snapshots.total_bytes[at])}`,
      texts[snapshots.message[at]]].filter((each) => each));
  },
  press(event) { const at = snapshotAt(event); if (at !== null) select(at); },
  leave() {},
  centre: () => (state.selected === null ? (axis.start + axis.stop) / 2 : places[state.selected]),
  step(across, down) {
    if (!number) return;
    if (state.selected === null) { select(down ? number - 1 : Math.min(visible()[0], number - 1)); return; }
    if (across) { select(Math.min(Math.max(state.selected + across, 0), number - 1)); return; }
    const lane = laneOf[state.selected] + down;
    const others = laneOf.map((each, at) => [each, at]).filter(([each]) => each === lane).map(([, at]) => at);
    if (!others.length) return;
    select(others.reduce((best, at) => (Math.abs(at - state.selected) < Math.abs(best - state.selected) ? at : best)));
  },
  end(side) { if (number) select(side < 0 ? 0 : number - 1); },
};
steer(canvas, axis, MARGINS, place);

function select(at) {
  state.selected = at;
  if (places[at] < axis.start) axis.show(places[at] - 0.5, places[at] - 0.5 + axis.span);
  else if (places[at] > axis.stop) axis.show(places[at] + 0.5 - axis.span, places[at] + 0.5);
  picture.later();
  showDetails();
}

function zoomTo(at) {
  const span = Math.min(axis.span, 60);
  axis.show(places[at] - span / 2, places[at] + span / 2);
  select(at);
}
