// The map of a file: columns across, stripes down, a cell for each.
const { file, parts, groups, stripes, names, keys, columns, cells, pages, encodings, streams, types } = data;
const numStripes = stripes.rows.length;
const numColumns = columns.metadata_bytes.length;
const LEFT = 96;
const RIGHT = 26;
const MARGINS = { left: LEFT, right: RIGHT };
const NAMES_HIGH = 104;
const NAMES_FLAT = 24;
const ROWS_STEP = 50;
const isGrouped = groups.columns > 1 || groups.stripes > 1;

const columnBytes = columns.metadata_bytes.map((bytes, column) => {
  let total = bytes + columns.dictionary_bytes[column] + columns.bloom_bytes[column];
  for (let stripe = 0; stripe < numStripes; stripe += 1) total += cells.bytes[column * numStripes + stripe];
  return total;
});
const pageStarts = [0];
for (const number of cells.pages) pageStarts.push(pageStarts[pageStarts.length - 1] + number);
// Encodings by their bytes, so that the most frequent get colours of their own.
const encodingBytes = new Map();
cells.encoding.forEach((each, cell) =>
  encodingBytes.set(each, (encodingBytes.get(each) ?? 0) + cells.bytes[cell]));
const isNothing = (encoding) => ["nothing stored", "all null"].includes(encodings[encoding]);
const shownEncodings = [...encodingBytes.keys()].sort((one, other) =>
  isNothing(one) - isNothing(other) || encodingBytes.get(other) - encodingBytes.get(one));
const bytesMost = cells.bytes.reduce((most, each) => Math.max(most, each), 1);
const lastOf = (column) => Math.min((column + 1) * groups.columns, file.columns) - 1;
const name = (column) => clean(names.length === file.columns ? names[column * groups.columns] : names[column]);
const label = (column) => (groups.columns === 1 ? name(column)
  : `${name(column)} and ${count(lastOf(column) - column * groups.columns)} more`);
const stripeLabel = (stripe) => (groups.stripes === 1 ? `stripe ${count(stripe)}`
  : `stripes from ${count(stripe * groups.stripes)}`);

const state = { colour: "encoding", width: "equal", sort: "bytes", search: "", selected: null,
  found: null, keys: [], rows: ROWS_STEP };
const rowTops = [0];
stripes.rows.forEach((rows, stripe) => rowTops.push(rowTops[stripe] + Math.max(rows, 1)));

const axis = new Axis(Math.max(numColumns, 1), 1);
// Where columns begin on the axis, whose length is that of their number in either case.
let starts = [];
function placeColumns() {
  const weights = state.width === "bytes" ? columnBytes : columnBytes.map(() => 1);
  const total = sum(weights) || 1;
  starts = [0];
  weights.forEach((weight, column) =>
    starts.push(starts[column] + (weight / total) * axis.length));
}
placeColumns();

function columnAt(position) {
  let [low, high] = [0, numColumns - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (starts[middle] <= position) low = middle; else high = middle - 1;
  }
  return low;
}

const METRICS = {
  encoding: { text: "Encoding" },
  bytes: { text: "Bytes", ends: ["few bytes", "many bytes"], ramp: () => [inks.low, inks.middle, inks.high],
    part: (found) => (found.bytes ? Math.log1p(found.bytes) / Math.log1p(bytesMost) : null) },
  ratio: { text: "Compression ratio", ends: ["twice as large as in Arrow", "16 times smaller"],
    ramp: () => [inks.worse, inks.same, inks.better],
    part: (found) => (found.arrow > 0 && found.ofArrow
      ? (Math.log2(found.arrow / found.ofArrow) + 1) / 5 : null) },
  nulls: { text: "Nulls", ends: ["no nulls", "all null"], ramp: () => [inks.low, inks.middle, inks.high],
    part: (found) => (found.ofNulls ? found.nulls / found.ofNulls : null) },
};

const encodingColour = (encoding) => {
  if (isNothing(encoding)) return inks.empty;
  return PALETTE[shownEncodings.indexOf(encoding) % PALETTE.length];
};

function colourOf(found) {
  if (state.colour === "encoding") return encodingColour(found.encoding);
  const metric = METRICS[state.colour];
  const part = metric.part(found);
  return part === null ? inks.empty : ramp(part, metric.ramp());
}

// Several cells as one: numbers that are known add up, and the encoding is that of most bytes.
function together(columnFrom, columnTo, stripeFrom, stripeTo) {
  const found = { bytes: 0, arrow: -1, ofArrow: 0, nulls: -1, ofNulls: 0, rows: 0, encoding: 0,
    shares: new Map() };
  let most = -1;
  for (let column = columnFrom; column < columnTo; column += 1) {
    for (let stripe = stripeFrom; stripe < stripeTo; stripe += 1) {
      const cell = column * numStripes + stripe;
      const bytes = cells.bytes[cell];
      found.bytes += bytes;
      const rows = stripes.rows[stripe] * (lastOf(column) - column * groups.columns + 1);
      found.rows += rows;
      if (cells.arrow_bytes[cell] >= 0) {
        found.arrow = Math.max(found.arrow, 0) + cells.arrow_bytes[cell];
        found.ofArrow += bytes;
      }
      if (cells.nulls[cell] >= 0) {
        found.nulls = Math.max(found.nulls, 0) + cells.nulls[cell];
        found.ofNulls += rows;
      }
      const own = (found.shares.get(cells.encoding[cell]) ?? 0) + bytes;
      found.shares.set(cells.encoding[cell], own);
      if (own > most) [most, found.encoding] = [own, cells.encoding[cell]];
    }
  }
  return found;
}

// Runs of neighbours that share a pixel; each is drawn as one.
function runs(first, last, edge) {
  const found = [];
  for (let from = first; from < last;) {
    const begin = edge(from);
    let to = from + 1;
    while (to < last && Math.floor(edge(to)) - Math.floor(begin) < 1) to += 1;
    found.push([from, to, Math.floor(begin), Math.floor(edge(to))]);
    from = to;
  }
  return found;
}

const canvas = make("canvas", { id: "map", tabIndex: 0 });
canvas.setAttribute("role", "application");
canvas.setAttribute("aria-label", "Map of columns and stripes. Arrow keys move between cells, "
  + "plus and minus zoom, 0 shows everything. The same numbers are in the table below.");
const bodyHeight = () => Math.min(Math.max(numStripes * 34, 120), 420);

function xOf(position, width) { return LEFT + ((position - axis.start) / axis.span) * (width - LEFT - RIGHT); }

// Names stand over their columns, aslant where those are narrow.
let headHeight = NAMES_FLAT;
function measureHead(width) {
  const context = canvas.getContext("2d");
  context.font = FONT;
  const shown = axis.span < (width - LEFT - RIGHT) / 14 ? visible() : [];
  const wide = (column) => context.measureText(label(column)).width;
  const fits = (column) => wide(column) <= xOf(starts[column + 1], width) - xOf(starts[column], width) - 8;
  const longest = shown.reduce((most, column) => Math.max(most, wide(column)), 0);
  headHeight = shown.every(fits) ? NAMES_FLAT : Math.min(NAMES_HIGH, Math.ceil(longest * 0.87) + 22);
  return headHeight + bodyHeight();
}

function visible() {
  const first = columnAt(axis.start);
  const last = numColumns ? columnAt(Math.max(axis.stop - 1e-9, 0)) + 1 : 0;
  return Array.from({ length: last - first }, (_, at) => first + at);
}

function drawMap(context, width, height) {
  const top = headHeight;
  const tall = height - top;
  const yOf = (stripe) => top + (rowTops[stripe] / rowTops[numStripes]) * tall;
  const shown = visible();
  const [first, last] = shown.length ? [shown[0], shown[shown.length - 1] + 1] : [0, 0];
  const across = runs(first, last, (column) => xOf(starts[column], width));
  const down = runs(0, numStripes, yOf);
  context.save();
  context.beginPath();
  context.rect(LEFT, 0, width - LEFT, headHeight);
  context.rect(LEFT, headHeight, width - LEFT - RIGHT, height);
  context.clip();
  for (const [from, to, left, right] of across) {
    const gap = right - left > 5 ? 1 : 0;
    for (const [above, below, high, low] of down) {
      const found = together(from, to, above, below);
      const inset = low - high > 5 ? 1 : 0;
      context.globalAlpha = state.found && !matches(from, to) ? 0.18 : 1;
      fillCell(context, found, left, high, Math.max(right - left - gap, 1), Math.max(low - high - inset, 1));
      if (right - left > 62 && low - high > 15) cellText(context, found, left, high, right, low);
    }
  }
  context.globalAlpha = 1;
  drawNames(context, across, top);
  if (state.selected) outline(context, xOf(starts[state.selected[0]], width),
    yOf(state.selected[1]), xOf(starts[state.selected[0] + 1], width), yOf(state.selected[1] + 1));
  context.restore();
  stripeNames(context, down);
  Object.assign(canvas.dataset, { first, last, drawn: across.length * down.length, colour: state.colour });
}

// Cells that share a pixel are stacked by the bytes of their encodings.
function fillCell(context, found, left, high, width, height) {
  context.fillStyle = colourOf(found);
  context.fillRect(left, high, width, height);
  if (state.colour !== "encoding" || found.shares.size < 2 || !found.bytes) return;
  let above = high;
  for (const encoding of shownEncodings.filter((each) => found.shares.get(each))) {
    const part = (found.shares.get(encoding) / found.bytes) * height;
    context.fillStyle = encodingColour(encoding);
    context.fillRect(left, above, width, part);
    above += part;
  }
}

function cellText(context, found, left, high, right, low) {
  const fill = context.fillStyle.match(/^#/) ? context.fillStyle : "#888888";
  const light = [1, 3, 5].map((at) => parseInt(fill.slice(at, at + 2), 16));
  context.fillStyle = light[0] * 0.3 + light[1] * 0.59 + light[2] * 0.11 > 140 ? "#10151c" : "#ffffff";
  context.textBaseline = "middle";
  const nulls = found.nulls < 0 ? "nulls unknown" : `${share(found.nulls, found.ofNulls)} null`;
  const text = { encoding: encodings[found.encoding], bytes: size(found.bytes),
    ratio: found.arrow > 0 && found.ofArrow ? `${(found.arrow / found.ofArrow).toFixed(1)}×` : "",
    nulls }[state.colour];
  context.fillText(readable(context, text, right - left - 12), left + 6, (high + low) / 2);
}

function outline(context, left, high, right, low) {
  context.strokeStyle = inks.mark;
  context.lineWidth = 2.5;
  context.strokeRect(left, high, Math.max(right - left - 1, 3), Math.max(low - high - 1, 3));
}

function drawNames(context, across, top) {
  const shown = across.filter(([from, to]) => to - from === 1);
  const narrowest = Math.min(...across.map(([, , left, right]) => right - left), 1e9);
  context.fillStyle = inks.soft;
  context.textBaseline = "alphabetic";
  if (narrowest < 14 && state.width === "equal") {
    context.fillText("Zoom in to read the names of columns", LEFT + 4, top - 8);
    return;
  }
  for (const [column, , left, right] of shown) {
    if (right - left < 14) continue;
    context.fillStyle = state.found && state.found.has(column) ? inks.mark : inks.ink;
    const whole = context.measureText(label(column)).width <= right - left - 6;
    context.save();
    context.translate(whole ? left + 3 : left + Math.min((right - left) / 2, 20) + 4, top - 6);
    if (!whole) context.rotate(-Math.PI / 3);
    context.fillText(readable(context, label(column), whole ? right - left : NAMES_HIGH), 0, 0);
    context.restore();
  }
}

function stripeNames(context, down) {
  context.textBaseline = "middle";
  context.fillStyle = inks.soft;
  for (const [above, below, high, low] of down) {
    if (below - above > 1 || low - high < 13) continue;
    context.fillText(readable(context, stripeLabel(above), LEFT - 12), 0, (high + low) / 2 - (low - high > 30 ? 7 : 0));
    if (low - high > 30) {
      context.fillText(readable(context, counted(stripes.rows[above], "row"), LEFT - 12), 0, (high + low) / 2 + 8);
    }
  }
  if (numStripes && down.every(([above, below, high, low]) => below - above > 1 || low - high < 13)) {
    context.fillText(readable(context, stripeLabel(0), LEFT - 8), 0, headHeight + 8);
    context.fillText(readable(context, `to ${count(file.stripes - 1)}`, LEFT - 8), 0, headHeight + bodyHeight() - 8);
  }
  if (!down.length) context.fillText("The file has no stripes: it holds no rows.", 0, headHeight + 20);
}

const matches = (from, to) => {
  for (let column = from; column < to; column += 1) if (state.found.has(column)) return true;
  return false;
};

function cellAt(event) {
  const box = canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  if (x < LEFT || x >= box.width - RIGHT || y < headHeight || !numColumns || !numStripes) return null;
  const column = columnAt(axis.start + ((x - LEFT) / (box.width - LEFT - RIGHT)) * axis.span);
  const row = ((y - headHeight) / (box.height - headHeight)) * rowTops[numStripes];
  const stripe = Math.max(rowTops.findIndex((each) => each > row) - 1, 0);
  return [column, row >= rowTops[numStripes] ? numStripes - 1 : stripe];
}

function ratioText(found) {
  const ratio = found.arrow / found.ofArrow;
  return ratio >= 1 ? `${ratio.toFixed(2)} times smaller` : `${(1 / ratio).toFixed(2)} times larger`;
}

function cellLines(column, stripe) {
  const found = together(column, column + 1, stripe, stripe + 1);
  const lines = [
    `${encodings[found.encoding]}, ${size(found.bytes)} in ${counted(cells.pages[column * numStripes + stripe], "page")}`];
  if (found.arrow > 0 && found.ofArrow) lines.push(`${ratioText(found)} than in Arrow`);
  lines.push(found.nulls < 0 ? "nulls not counted" : `${counted(found.nulls, "null")} of ${counted(found.rows, "value")}`);
  return lines;
}

const picture = new Picture(canvas, measureHead, drawMap);
axis.watching.push(() => picture.later());

const place = {
  hover(event) {
    const cell = cellAt(event);
    canvas.style.cursor = cell ? "pointer" : "default";
    if (!cell) { hideTip(); return; }
    showTip(event, `${label(cell[0])} · ${stripeLabel(cell[1])}`,
      [types[columns.type[cell[0]]], ...cellLines(...cell)]);
  },
  press(event) { const cell = cellAt(event); if (cell) select(cell); },
  leave() {},
  centre: () => (state.selected ? (starts[state.selected[0]] + starts[state.selected[0] + 1]) / 2
    : (axis.start + axis.stop) / 2),
  step(across, down) {
    const [column, stripe] = state.selected ?? [columnAt(axis.start), 0];
    if (!state.selected) { select([column, stripe]); return; }
    select([Math.min(Math.max(column + across, 0), numColumns - 1),
      Math.min(Math.max(stripe + down, 0), numStripes - 1)]);
  },
  end(side) { select([side < 0 ? 0 : numColumns - 1, state.selected?.[1] ?? 0]); },
};
steer(canvas, axis, MARGINS, place);

// What is selected comes into view.
function select(cell) {
  if (!numColumns || !numStripes) return;
  state.selected = cell;
  const [from, to] = [starts[cell[0]], starts[cell[0] + 1]];
  if (from < axis.start) axis.show(from, from + axis.span);
  else if (to > axis.stop) axis.show(to - axis.span, to);
  picture.later();
  showDetails();
}

function zoomTo(column) {
  const [from, to] = [starts[column], starts[column + 1]];
  const span = Math.max(Math.min(axis.span, 24), (to - from) * 1.5);
  axis.show((from + to - span) / 2, (from + to + span) / 2);
  select([column, state.selected?.[1] ?? 0]);
}
