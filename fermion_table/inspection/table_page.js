// A table: its first rows, its columns, and what each of its last commits did to the rows.
const shown = (cell) => (cell === null ? make("span", { className: "soft" }, "null") : cell);

function grid({ names, rows, changes, hidden }) {
  const header = changes ? ["Change", ...names.map(clean)] : names.map(clean);
  const body = rows.map((row, at) => (changes ? [changes[at], ...row.map(shown)] : row.map(shown)));
  const drawn = table(header, body);
  changes?.forEach((change, at) => drawn.tBodies[0].rows[at].classList.add(change.split("_").pop()));
  return make("div", {}, make("div", { className: "scroll" }, drawn),
    hidden ? make("p", { className: "soft" }, `${counted(hidden, "more column")} not shown.`) : null);
}

function drawColumns({ header, rows, hidden }) {
  const list = make("div", { id: "columns" });
  const said = make("span", { className: "soft", role: "status" });
  const box = make("input", { type: "search", id: "search", autocomplete: "off", spellcheck: false, placeholder: "Name or type" });
  let most = 50;
  const draw = () => {
    const wanted = box.value.toLowerCase();
    const found = rows.filter((row) => `${row[0]}\n${row[1]}`.toLowerCase().includes(wanted));
    said.textContent = wanted === "" ? "" : `${counted(found.length, "column")} found`;
    const rest = found.length - most;
    list.replaceChildren(make("div", { className: "scroll" }, table(header, found.slice(0, most).map((row) => row.map((cell) => cell ?? "")))),
      ...(rest > 0 ? [button(`${count(rest)} more`, "Show more columns", () => { most += 200; draw(); })] : []),
      make("p", { className: "soft" }, `${hidden ? `${counted(hidden, "more column")} not listed. ` : ""}≤ and ≥ are `
        + "limits from the metadata of files, which also hold rows that were deleted or replaced, or whose bounds were cut (…). "
        + "Empty: metadata do not tell, or there are no values."));
  };
  box.addEventListener("input", draw);
  draw();
  section(make("div", { className: "tools" }, make("h2", {}, "Columns"), make("label", { htmlFor: "search" }, "Search", box), said), list);
}

function drawCommits(commits) {
  const details = make("div", { id: "commit" });
  details.setAttribute("aria-live", "polite");
  const slider = make("input", { type: "range", id: "when", min: 0, max: commits.length - 1, value: commits.length - 1 });
  const draw = () => {
    const { title, facts: pairs, lines, rows, note, code } = commits[Number(slider.value)];
    details.replaceChildren(make("h3", {}, clean(title)), facts(pairs),
      ...lines.map((line) => make("p", {}, clean(line))),
      rows ? grid(rows) : "", note ? make("p", { className: "soft" }, clean(note)) : "",
      ...code.map(([what, text]) => make("p", {}, `${what} `, make("code", {}, clean(text)))));
  };
  const move = (by) => { slider.value = Number(slider.value) + by; draw(); };
  slider.addEventListener("input", draw);
  draw();
  const tools = commits.length < 2 ? [] : [make("label", { htmlFor: "when" }, "Snapshot", slider), make("span", {},
    button("‹", "The snapshot before", () => move(-1)), " ", button("›", "The snapshot after", () => move(1)))];
  section(make("div", { className: "tools" }, make("h2", {}, commits.length < 2 ? "Difference" : "History"), ...tools), details);
}

document.body.prepend(make("h1", {}, clean(data.title)), facts(data.facts));
if (data.head) section(make("div", { className: "tools" }, make("h2", {}, "First rows")), grid(data.head), data.head.rows.length ? "" : make("p", { className: "soft" }, "The table has no rows."));
if (data.note) section(make("p", {}, clean(data.note))).classList.add("notice");
if (data.commits.length) drawCommits(data.commits);
if (data.columns) drawColumns(data.columns);
