// Around the map: facts, parts of the file, search, legend, details and the table of columns.
function drawFacts() {
  document.body.prepend(
    make("h1", {}, clean(file.path)),
    facts([["rows", count(file.rows)], ["columns", count(file.columns)], ["stripes", count(file.stripes)],
      ["pages", count(pages.count)], ["size", size(file.size)], ["format version", file.version],
      ["checksums", file.checksum], ["written by", file.created_by]]),
  );
  if (!isGrouped) return;
  const said = [];
  if (groups.columns > 1) said.push(`${count(groups.columns)} columns that are neighbours`);
  if (groups.stripes > 1) said.push(`${count(groups.stripes)} stripes that follow each other`);
  const what = said.length > 1 ? "columns and stripes" : groups.columns > 1 ? "columns" : "stripes";
  const text = `The file has more ${what} than the page shows one by one: a cell stands for `
    + `${said.join(" and ")}. Its numbers are sums, and its encoding is that of most bytes.`;
  section(make("p", {}, text)).classList.add("notice");
}

function drawParts() {
  const bar = make("div", { className: "bar", role: "img" });
  bar.setAttribute("aria-label", "Parts of the file; the list below has the same numbers");
  const list = make("ul", { className: "legend", id: "parts" });
  parts.forEach(([part, bytes], place) => {
    const piece = make("span", { title: `${part}: ${size(bytes)}` });
    piece.style.background = PALETTE[place % PALETTE.length];
    piece.style.flexGrow = bytes;
    bar.append(piece);
    list.append(make("li", {}, swatch(PALETTE[place % PALETTE.length]), `${part} `,
      make("span", { className: "soft" }, `${size(bytes)}, ${share(bytes, file.size)}`)));
  });
  section(make("div", { className: "tools" }, make("h2", {}, "Where the bytes are")), bar, list);
}

const searchBox = make("input", { type: "search", id: "search", placeholder: "Name of a column",
  autocomplete: "off", spellcheck: false });
const searchSaid = make("span", { className: "soft", id: "found", role: "status" });
const lowerNames = names.map((each) => each.toLowerCase());
const lowerKeys = keys.map(([, key]) => key.toLowerCase());

function search() {
  const wanted = searchBox.value.toLowerCase();
  state.search = wanted;
  state.rows = ROWS_STEP;
  if (wanted === "") {
    [state.found, state.keys, searchSaid.textContent] = [null, [], ""];
  } else {
    const all = names.length === file.columns;
    const hits = [];
    lowerNames.forEach((each, at) => { if (each.includes(wanted)) hits.push(at); });
    state.keys = keys.filter((each, at) => lowerKeys[at].includes(wanted));
    state.found = new Set([...hits.map((at) => (all ? Math.floor(at / groups.columns) : at)),
      ...state.keys.map(([column]) => column)]);
    const below = keys.length ? `, keys or paths: ${count(state.keys.length)}` : "";
    searchSaid.textContent = `${counted(hits.length, "column")} found${below}`;
  }
  picture.later();
  showColumns();
}

let nextHit = 0;
searchBox.addEventListener("input", () => { nextHit = 0; search(); });
searchBox.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !state.found || !state.found.size) return;
  const hits = [...state.found];
  zoomTo(hits[nextHit % hits.length]);
  nextHit += 1;
});

const legend = make("ul", { className: "legend", id: "legend" });
function showLegend() {
  if (state.colour === "encoding") {
    const total = sum(cells.bytes);
    legend.replaceChildren(...shownEncodings.slice(0, PALETTE.length).map((each) => make("li", {},
      swatch(encodingColour(each)), `${encodings[each]} `,
      make("span", { className: "soft" }, isNothing(each) ? "" : share(encodingBytes.get(each), total)))));
    return;
  }
  const { ends, ramp: colours } = METRICS[state.colour];
  const strip = make("span", { className: "ramp" });
  strip.style.background = `linear-gradient(to right, ${colours().join(", ")})`;
  legend.replaceChildren(make("li", {}, ends[0], strip, ends[1]),
    make("li", {}, swatch(inks.empty), state.colour === "nulls" ? "not counted" : "nothing stored, or not known"));
}

function drawTools() {
  const map = make("figure", {}, canvas, strip, legend, make("figcaption", {},
    "A stripe is as high as its rows. Columns that share a pixel are stacked by their bytes. Ctrl and "
    + "wheel, double click, + and − zoom; drag moves; a click shows the pages of a cell."));
  section(
    make("div", { className: "tools" }, make("h2", {}, "Columns and stripes"),
      make("label", { htmlFor: "search" }, "Search", searchBox), searchSaid,
      choice("Colour", "colour", Object.entries(METRICS).map(([key, { text }]) => [key, text]), (value) => {
        state.colour = value;
        showLegend();
        picture.later();
        strips.later();
      }),
      choice("Width", "width", [["equal", "the same for all"], ["bytes", "by bytes"]], (value) => {
        const centre = columnAt((axis.start + axis.stop) / 2);
        state.width = value;
        placeColumns();
        strips.later();
        const middle = (starts[centre] + starts[centre + 1]) / 2;
        axis.show(middle - axis.span / 2, middle + axis.span / 2);
      }),
      zoomButtons(axis, place.centre)),
    map);
}

const strip = make("canvas", { id: "overview", className: "overview" });
strip.setAttribute("aria-hidden", "true");
const strips = overview(strip, axis, MARGINS, (context, left, width, height) => {
  const edge = (column) => left + (starts[column] / axis.length) * width;
  for (const [from, to, begin, end] of runs(0, numColumns, edge)) {
    fillCell(context, together(from, to, 0, numStripes), begin, 0, Math.max(end - begin, 1), height);
  }
});

const details = section();
details.id = "details";
details.setAttribute("aria-live", "polite");
details.remove();

function showDetails() {
  const [column, stripe] = state.selected;
  const cell = column * numStripes + stripe;
  const other = [["type", types[columns.type[column]]], ["bytes of the column", `${size(columnBytes[column])}, `
    + `${share(columnBytes[column], file.size)} of the file`],
  ["column metadata", size(columns.metadata_bytes[column])]];
  if (columns.dictionary_bytes[column]) other.push(["dictionary for all stripes", size(columns.dictionary_bytes[column])]);
  if (columns.bloom_bytes[column]) other.push(["Bloom filters", size(columns.bloom_bytes[column])]);
  if (columns.min && columns.min[column] !== "") other.push(["min", columns.min[column]], ["max", columns.max[column]]);
  details.replaceChildren(
    make("div", { className: "tools" }, make("h2", {}, `${label(column)} · ${stripeLabel(stripe)}`)),
    make("div", { className: "two" },
      make("div", {}, facts(other), ...cellLines(column, stripe).map((line) => make("p", {}, line)),
        make("p", { className: "soft" }, `rows from ${count(stripes.first_row[stripe])} on`)),
      make("div", {}, pageTable(cell))));
}

function pageTable(cell) {
  if (!pages.bytes) return make("p", { className: "soft" }, "The pages of this file are too many to be listed here.");
  const [from, to] = [pageStarts[cell], pageStarts[cell + 1]];
  if (from === to) return make("p", { className: "soft" }, `No pages: ${encodings[cells.encoding[cell]]}.`);
  const rows = [];
  for (let page = from; page < Math.min(to, from + ROWS_STEP); page += 1) {
    rows.push([streams[pages.stream[page]], encodings[pages.encoding[page]], size(pages.bytes[page]),
      pages.slots[page] ? count(pages.slots[page]) : "dictionary"]);
  }
  return make("div", {}, table(["Stream", "Encoding", "Bytes", "Slots"], rows, [2, 3]),
    to - from > ROWS_STEP ? make("p", { className: "soft" }, `and ${counted(to - from - ROWS_STEP, "page")} more`) : null);
}

const list = make("div", { id: "columns" });
const orders = {
  bytes: (one, other) => columnBytes[other] - columnBytes[one] || one - other,
  file: (one, other) => one - other,
  name: (one, other) => (name(one) < name(other) ? -1 : 1),
};
function showColumns() {
  const shown = [...Array(numColumns).keys()].filter((each) => !state.found || state.found.has(each));
  shown.sort(orders[state.sort]);
  const most = Math.max(...shown.slice(0, 1).map((each) => columnBytes[each]), 1);
  const rows = shown.slice(0, state.rows).map((column) => {
    const found = together(column, column + 1, 0, numStripes);
    const meter = make("span", { className: "meter" });
    meter.style.width = `${Math.min(100, (100 * columnBytes[column]) / most)}%`;
    return [button(label(column), `Show ${label(column)} on the map`, () => zoomTo(column)),
      types[columns.type[column]],
      make("div", {}, `${size(columnBytes[column])}, ${share(columnBytes[column], file.size)}`, meter),
      found.arrow > 0 && found.ofArrow ? `${(found.arrow / found.ofArrow).toFixed(1)}×` : "",
      found.nulls < 0 ? "not counted" : share(found.nulls, found.ofNulls), encodings[found.encoding]];
  });
  const grid = table(["Column", "Type", "Bytes", "Ratio", "Nulls", "Encoding"], rows, [3, 4]);
  grid.querySelectorAll("td button").forEach((each) => { each.className = "link"; });
  grid.querySelectorAll("th, td:nth-child(3)")[2].className = "wide";
  const rest = shown.length - rows.length;
  list.replaceChildren(
    shown.length ? grid : make("p", { className: "soft" }, numColumns ? "No column has this name." : "The file has no columns."),
    ...(rest > 0 ? [button(`${count(rest)} more`, "Show more columns", () => {
      state.rows += ROWS_STEP * 4;
      showColumns();
    })] : []));
  if (!state.keys.length) return;
  const shownKeys = state.keys.slice(0, state.rows).map(([column, key, bytes]) =>
    [label(column), clean(key), size(bytes)]);
  const moreKeys = state.keys.length - shownKeys.length;
  list.append(table(["Column", "Key or path", "Bytes"], shownKeys, [2]),
    moreKeys > 0 ? make("p", { className: "soft" }, `and ${count(moreKeys)} more`) : "");
}

drawFacts();
drawParts();
drawTools();
document.body.append(details);
details.append(make("p", { className: "soft" }, "Choose a cell of the map or a column of the table to see its pages."));
section(make("div", { className: "tools" }, make("h2", {}, isGrouped ? "Groups of columns" : "Columns"),
  choice("Order", "order", [["bytes", "largest first"], ["file", "as in the file"], ["name", "by name"]],
    (value) => { state.sort = value; showColumns(); })), list);
showLegend();
showColumns();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readInks();
  showLegend();
  picture.later();
  strips.later();
});
