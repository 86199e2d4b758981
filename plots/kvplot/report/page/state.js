// The choice, the controls that make it, and the address that repeats it.

import { DATA, LABELS, wordsOf } from "./data.js";
import { textName } from "./means.js";
import { MEMORY, VIEWS } from "./rows.js";

export const METRICS = DATA.numbers.filter((path) => path.startsWith("errors.") || path.startsWith("mass."));
const PARAMETERS = [...new Set(DATA.settings.flatMap(({ params }) =>
  Object.keys(params).filter((name) => typeof params[name] === "number")))].map((name) => `params.${name}`);
const AGAINST = [MEMORY, ...DATA.numbers.filter((path) => path !== MEMORY), ...PARAMETERS]
  .filter((path) => path.startsWith("params.") || DATA.numbers.includes(path));

const DEFAULTS = {
  view: "settings", metric: METRICS[0], against: AGAINST[0], layer: null, head: null, sequence: null,
  yscale: "log", xscale: "log", intervals: false, frontier: true, search: "", hidden: new Set(),
  range: null, sort: null, falling: false, page: 0, chosen: null, columns: {},
};
export const fresh = () => ({ ...DEFAULTS, hidden: new Set(), columns: {} });
export const state = fresh();

export const element = (id) => document.getElementById(id);
const unique = (values) => [...new Set(values)].sort((a, b) => a < b ? -1 : a > b ? 1 : 0);
// An element with text, attributes and children; text is never markup.
export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function fillSelect(id, entries) {
  element(id).replaceChildren(...entries.map(([value, text]) => make("option", { value }, text)));
}

const OF_UNITS = {
  layer: unique(DATA.units.map((unit) => unit.layer)),
  head: unique(DATA.units.map((unit) => unit.kv_head)),
  sequence: unique(DATA.units.map(textName)),
};

export function fillControls() {
  fillSelect("view", Object.entries(VIEWS).map(([name, view]) => [name, view.name]));
  fillSelect("metric", METRICS.map((path) => [path, wordsOf(path)]));
  fillSelect("against", AGAINST.map((path) => [path, wordsOf(path)]));
  for (const [name, values] of Object.entries(OF_UNITS)) {
    fillSelect(name, [["", "all"], ...values.map((value) => [String(value), String(value)])]);
    element(name).disabled = values.length < 2;
  }
}

const TICKS = ["intervals", "frontier"];
const CHOICES = ["view", "metric", "against", "yscale", "xscale", "search"];

export function showControls() {
  for (const name of CHOICES) element(name).value = state[name];
  for (const name of TICKS) Object.assign(element(name), { checked: state[name], disabled: state.view !== "settings" });
  for (const name of Object.keys(OF_UNITS)) element(name).value = state[name] === null ? "" : String(state[name]);
}

// The function that draws the page after a change.
let redraw = null;
export function whenChosen(draw) {
  redraw = draw;
}

// Takes a change {name: value} and draws again. Choices that the change makes meaningless are taken back.
export function choose(change) {
  if ("view" in change) Object.assign(state, { sort: null, falling: false });
  if (["metric", "against", "layer", "head", "sequence", "view"].some((name) => name in change)) state.range = null;
  if (!("page" in change) && !("chosen" in change)) state.page = 0;
  Object.assign(state, change);
  showControls();
  writeAddress();
  redraw();
}

// A row is chosen itself, or in another view by its setting.
export function isChosen(id) {
  if (!state.chosen) return false;
  return state.chosen.view === state.view ? state.chosen.id === id
    : VIEWS[state.view].settingOf(id) === state.chosen.setting;
}

export function listenToControls() {
  for (const name of CHOICES) {
    element(name).addEventListener(name === "search" ? "input" : "change", () => choose({ [name]: element(name).value }));
  }
  for (const name of TICKS) element(name).addEventListener("change", () => choose({ [name]: element(name).checked }));
  for (const [name, values] of Object.entries(OF_UNITS)) {
    element(name).addEventListener("change", () =>
      choose({ [name]: values.find((value) => String(value) === element(name).value) ?? null }));
  }
  element("controls").addEventListener("submit", (event) => event.preventDefault());
  element("reset").addEventListener("click", (event) => {
    event.preventDefault();
    choose(fresh());
  });
}

// ---- the address: what differs from a fresh page, after #

function writeAddress() {
  const words = new URLSearchParams();
  for (const name of [...CHOICES, ...TICKS, ...Object.keys(OF_UNITS), "sort", "falling"]) {
    if (state[name] !== DEFAULTS[name]) words.set(name, state[name]);
  }
  if (state.hidden.size) words.set("hidden", JSON.stringify([...state.hidden]));
  const text = words.toString();
  try {
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  } catch {
    // Some browsers forbid it in a page that was opened as a file: the address stays.
  }
}

// Only words that the controls know are taken.
export function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  const known = (id, value) => [...element(id).options].some((option) => option.value === value);
  for (const name of CHOICES) {
    const value = words.get(name);
    if (value !== null && (name === "search" || known(name, value))) state[name] = value;
  }
  for (const name of TICKS) if (words.has(name)) state[name] = words.get(name) === "true";
  for (const [name, values] of Object.entries(OF_UNITS)) {
    if (words.has(name)) state[name] = values.find((value) => String(value) === words.get(name)) ?? null;
  }
  if (words.has("sort")) Object.assign(state, { sort: words.get("sort"), falling: words.get("falling") === "true" });
  try {
    const hidden = JSON.parse(words.get("hidden") ?? "[]");
    state.hidden = new Set(LABELS.filter((label) => Array.isArray(hidden) && hidden.includes(label)));
  } catch {
    state.hidden = new Set();
  }
}
