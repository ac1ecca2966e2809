// What every page has: the data, texts, elements, colours and a tip at the pointer.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const PALETTE = ["#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#edc948",
  "#9c755f", "#ff9da7", "#7e8ce0", "#86bcb6", "#a0cbe8", "#8cd17d", "#d4a6c8", "#d37295"];
const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

// Characters that are not seen, or that change the direction of others, as escapes.
const clean = (text) => String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu,
  (each) => "\\u" + each.codePointAt(0).toString(16).padStart(4, "0"));
const count = (number) => (number < 0 ? "unknown" : number.toLocaleString("en-US"));
const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
const sum = (values) => values.reduce((total, each) => total + each, 0);

function size(bytes) {
  let unit = 0;
  for (; bytes >= 1023.95 && unit < UNITS.length - 1; unit += 1) bytes /= 1024;
  if (unit === 0) return bytes === 1 ? "1 byte" : `${count(bytes)} bytes`;
  return `${bytes.toFixed(1)} ${UNITS[unit]}`;
}

function share(part, whole) {
  if (!whole) return "";
  const percent = (100 * part) / whole;
  return percent > 0 && percent < 0.1 ? "< 0.1 %" : `${percent.toFixed(1)} %`;
}

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((each) => each !== null && each !== undefined));
  return element;
}

function facts(pairs) {
  const list = make("dl", { className: "facts" });
  for (const [name, value] of pairs) {
    if (value === null || value === "") continue;
    list.append(make("div", {}, make("dt", {}, name), make("dd", {}, clean(value))));
  }
  return list;
}

function table(header, rows, numeric = []) {
  const kind = (place) => (numeric.includes(place) ? "number" : "");
  const head = make("tr", {}, ...header.map((name, place) =>
    make("th", { scope: "col", className: kind(place) }, name)));
  const body = rows.map((row) => make("tr", {}, ...row.map((cell, place) =>
    make("td", { className: kind(place) }, cell instanceof Node ? cell : clean(cell)))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

function choice(label, id, options, changed) {
  const list = make("select", { id }, ...options.map(([value, text]) =>
    make("option", { value }, text)));
  list.addEventListener("change", () => changed(list.value));
  return make("label", { htmlFor: id }, label, list);
}

function button(text, title, pressed) {
  const found = make("button", { type: "button", title }, text);
  found.setAttribute("aria-label", title);
  found.addEventListener("click", pressed);
  return found;
}

function swatch(colour) {
  const found = make("span", { className: "swatch" });
  found.style.background = colour;
  return found;
}

function section(...children) {
  const found = make("section", {}, ...children);
  document.body.append(found);
  return found;
}

// Colours of the style, which differ between light and dark.
let inks = {};
function readInks() {
  const style = getComputedStyle(document.documentElement);
  inks = Object.fromEntries(["page", "card", "ink", "soft", "line", "accent", "mark", "empty", "low",
    "middle", "high", "worse", "same", "better"].map((name) =>
    [name, style.getPropertyValue(`--${name}`).trim()]));
}
readInks();

function mixed(from, to, part) {
  const channel = (colour, place) => parseInt(colour.slice(1 + 2 * place, 3 + 2 * place), 16);
  const each = [0, 1, 2].map((place) =>
    Math.round(channel(from, place) * (1 - part) + channel(to, place) * part));
  return `rgb(${each.join(",")})`;
}

function ramp(part, [low, middle, high]) {
  const found = Math.min(Math.max(part, 0), 1);
  return found < 0.5 ? mixed(low, middle, found * 2) : mixed(middle, high, found * 2 - 1);
}

function readable(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (context.measureText(text.slice(0, middle) + "…").width <= width) low = middle;
    else high = middle - 1;
  }
  return low ? `${text.slice(0, low)}…` : "";
}

const tip = make("div", { id: "tip", hidden: true, "aria-hidden": "true" });
document.body.append(tip);
function showTip(event, title, lines) {
  tip.replaceChildren(make("b", {}, clean(title)), ...lines.map((line) => make("div", {}, clean(line))));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - box.width - 8);
  const below = event.clientY + 16 + box.height < innerHeight;
  tip.style.left = `${Math.max(left, 8)}px`;
  tip.style.top = `${below ? event.clientY + 16 : Math.max(event.clientY - box.height - 12, 8)}px`;
}
const hideTip = () => { tip.hidden = true; };
