// Rows that the table lists and the scatter shows. A row's number (id) is, by view:
//   settings: the setting;  cells: the cell.

import { CELLS, commandOf, DATA, DESCRIBED, idOf, reasonOf, seedOf, STATUS, wordsOf } from "./data.js";
import { CELLS_OF_ROW, cellsOfRow, meansOf, sameUnits, textName, unitMask } from "./means.js";

export const MEMORY = "memory.fraction";

const paramOf = (setting, name) => {
  const value = DATA.settings[setting].params[name];
  return typeof value === "number" ? value : NaN;
};
// A path of a cell's number, or params.NAME.
export const meanOf = (path, row, choice) => path.startsWith("params.")
  ? paramOf(row, path.slice(7)) : meansOf(path, choice).mean[row];
export const cellNumber = (path, cell) => path.startsWith("params.")
  ? paramOf(CELLS.setting[cell], path.slice(7)) : CELLS.numbers[path][cell];

const headOfPath = (path) => path === MEMORY ? "memory" : wordsOf(path);
const textColumn = (key, name, text, title = "") => ({ key, name, text, title });
const numberColumn = (key, name, value, title = "", format = shortNumber) =>
  ({ key, name, value, title, format, number: true });

export function shortNumber(value) {
  if (value !== value) return "";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

export const ofSetting = (settingOf) => [
  textColumn("method", "method", (id) => DATA.settings[settingOf(id)].label),
  textColumn("parameters", "parameters", (id) => DESCRIBED[settingOf(id)].short,
             "those in which a method's settings differ"),
  textColumn("every", "all parameters", (id) => DESCRIBED[settingOf(id)].all),
];
// The definition of a path, and the path.
const meaning = (path) => DATA.meanings[path] ? `${DATA.meanings[path]} (${path})` : path;
const HEADLINES = DATA.headlines.filter((path) => DATA.numbers.includes(path));
const others = (choice, value) => [...HEADLINES, ...DATA.numbers.filter((path) => !HEADLINES.includes(path))]
  .filter((path) => path !== choice.metric && path !== choice.against)
  .map((path) => numberColumn(path, headOfPath(path), (id) => value(path, id), meaning(path)));

export const VIEWS = {
  settings: {
    name: "settings (means)",
    settingOf: (id) => id,
    ids: () => CELLS_OF_ROW.flatMap((cells, row) => cells.length ? [row] : []),
    passesUnits: true,  // some cell does
    number: (path, id, choice) => meanOf(path, id, choice),
    cells: (id) => cellsOfRow(id),
    shown: ["method", "parameters", "against", "metric", "std", "low", "high", ...HEADLINES, "units", "cells"],
    columns(choice) {
      const { metric, against } = choice, means = meansOf(metric, choice), same = sameUnits(metric, choice);
      const more = others(choice, (path, id) => meanOf(path, id, choice));
      const isHeadline = ({ key }) => HEADLINES.includes(key);
      return [
        ...ofSetting(this.settingOf),
        numberColumn("against", headOfPath(against), (id) => meanOf(against, id, choice), meaning(against)),
        numberColumn("metric", wordsOf(metric), (id) => means.mean[id], meaning(metric)),
        numberColumn("std", "± seeds", (id) => means.std[id], "standard deviation over seeds", (v) =>
          v ? shortNumber(Number(v.toPrecision(2))) : ""),
        numberColumn("low", "95 % from", (id) => means.low[id], "Student's t over " +
                     "texts, layers or KV heads, the outermost that differs"),
        numberColumn("high", "to", (id) => means.high[id], "upper end of the interval"),
        textColumn("over", "interval over", (id) => means.over[id]),
        ...more.filter(isHeadline),
        numberColumn("units", "units", (id) => means.units[id], "sequences x layers x KV heads that every method shown has"),
        textColumn("has", "has", (id) => `${same.has[id]} of ${same.every}`, "units that this setting has a number in"),
        numberColumn("seeds", "seeds", (id) => means.seeds[id]),
        numberColumn("cells", "cells", (id) => means.cells[id]),
        ...more.filter((column) => !isHeadline(column)),
        textColumn("command", "command", (id) => commandOf(chosenCells(cellsOfRow(id), choice))),
      ];
    },
  },
  cells: {
    name: "single cells",
    settingOf: (id) => CELLS.setting[id],
    ids: () => Uint32Array.from({ length: CELLS.count }, (_, cell) => cell),
    passesUnits: false,  // the cell itself does
    number: (path, id) => cellNumber(path, id),
    cells: (id) => [id],
    shown: ["method", "parameters", "sequence", "layer", "head", "seed", "against", "metric", "status"],
    columns(choice) {
      const { metric, against } = choice, unit = (id) => DATA.units[CELLS.unit[id]];
      return [
        ...ofSetting(this.settingOf),
        textColumn("sequence", "sequence", (id) => textName(unit(id))),
        numberColumn("layer", "layer", (id) => unit(id).layer),
        numberColumn("head", "head", (id) => unit(id).kv_head, "KV head"),
        numberColumn("seed", "seed", (id) => seedOf(id) ?? NaN, "", (v) => v === v ? String(v) : ""),
        numberColumn("against", headOfPath(against), (id) => cellNumber(against, id), meaning(against)),
        numberColumn("metric", wordsOf(metric), (id) => cellNumber(metric, id), meaning(metric)),
        ...others(choice, cellNumber),
        textColumn("status", "status", (id) => STATUS[CELLS.status[id]]),
        textColumn("reason", "reason", reasonOf),
        textColumn("id", "id", idOf),
        textColumn("command", "command", (id) => commandOf([id])),
      ];
    },
  },
};

const isWhole = ({ layer, head, sequence }) => layer === null && head === null && sequence === null;
export function chosenCells(cells, choice) {
  const keep = unitMask(choice);
  return cells.filter((cell) => keep[CELLS.unit[cell]]);
}

// ---- search: words, and comparisons such as budget=256, memory<0.5, error<=0.1, layer=3, status=failed

const COMPARISON = /^([\w.]+)(<=|>=|!=|<|>|=)(.+)$/;
const OPERATORS = {
  "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
  "=": (a, b) => a === b, "!=": (a, b) => a !== b,
};

function pathNamed(name, choice) {
  if (name === "error") return choice.metric;
  if (name === "memory") return MEMORY;
  return DATA.numbers.find((path) => path === name || path === `errors.${name}` ||
                                     path === `errors.${name}.mean`);
}

// A predicate of row numbers for one term.
function predicateOf(term, view, choice) {
  const { settingOf } = view, found = COMPARISON.exec(term);
  if (!found) return wordPredicate(term.toLowerCase(), view);
  const [, name, operator, text] = found, compare = OPERATORS[operator], wanted = Number(text);
  const holds = (value) => typeof value === "number" && text.trim() !== "" && wanted === wanted
    ? value === value && compare(value, wanted)
    : value !== undefined && value !== null && compare(String(value).toLowerCase(), text.toLowerCase());
  if (DATA.settings.some((setting) => name in setting.params)) {
    const mask = DATA.settings.map((setting) => name in setting.params && holds(setting.params[name]));
    return (id) => mask[settingOf(id)];
  }
  if (name === "method" || name === "label" || name === "algorithm") {
    const key = name === "algorithm" ? "algorithm" : "label";
    return (id) => holds(DATA.settings[settingOf(id)][key]);
  }
  const ofUnit = { layer: (unit) => unit.layer, head: (unit) => unit.kv_head, sequence: (unit) => unit.sequence }[name];
  if (ofUnit && view === VIEWS.cells) {
    const mask = DATA.units.map((unit) => holds(ofUnit(unit)));
    return (id) => mask[CELLS.unit[id]];
  }
  if (view === VIEWS.cells && name === "seed") return (id) => holds(seedOf(id));
  if (view === VIEWS.cells && name === "status") return (id) => holds(STATUS[CELLS.status[id]]);
  const path = pathNamed(name, choice);
  return path ? (id) => holds(view.number(path, id, choice)) : null;
}

function wordPredicate(word, view) {
  const has = (text) => text.toLowerCase().includes(word);
  const ofSettings = DATA.settings.map((setting, place) =>
    has(setting.label) || has(setting.algorithm) || has(DESCRIBED[place].all));
  if (view !== VIEWS.cells) return (id) => ofSettings[view.settingOf(id)];
  const ofUnits = DATA.units.map((unit) => has(unit.sequence));
  const ofReasons = DATA.result.reasons.map(has);
  const ofStatus = STATUS.map(has), isId = /^[0-9a-f]{6,}$/.test(word);
  return (id) => ofSettings[CELLS.setting[id]] || ofUnits[CELLS.unit[id]] || ofStatus[CELLS.status[id]] ||
    ofReasons[CELLS.reason[id]] || (isId && idOf(id).startsWith(word));
}

// Numbers of the rows that pass every filter, and what the search has of terms that name nothing.
export function chosenRows(choice) {
  const view = VIEWS[choice.view], unknown = [], tests = [];
  for (const term of choice.search.split(/\s+/).filter(Boolean)) {
    const test = predicateOf(term, view, choice);
    if (test) tests.push(test); else unknown.push(term);
  }
  const visible = DATA.settings.map((setting) => !choice.hidden.has(setting.label));
  tests.unshift((id) => visible[view.settingOf(id)]);
  if (!isWhole(choice)) {
    const mask = unitMask(choice);
    tests.push(view.passesUnits ? (id) => view.cells(id).some((cell) => mask[CELLS.unit[cell]])
                                : (id) => mask[CELLS.unit[id]]);
  }
  if (choice.range) {
    const inside = ([low, high], value) => value >= low && value <= high;
    tests.push((id) => inside(choice.range.x, view.number(choice.against, id, choice)) &&
                       inside(choice.range.y, view.number(choice.metric, id, choice)));
  }
  const ids = [];
  for (const id of view.ids()) if (tests.every((test) => test(id))) ids.push(id);
  return { ids, unknown };
}

export function sortedRows(ids, column, falling) {
  if (!column) return ids;
  if (!column.number) {
    const texts = new Map(ids.map((id) => [id, column.text(id)]));
    const order = new Intl.Collator("en", { numeric: true }).compare;
    return ids.slice().sort((a, b) => (falling ? -1 : 1) * order(texts.get(a), texts.get(b)));
  }
  const values = Float64Array.from(ids, column.value);
  const places = Uint32Array.from(ids.keys());
  const sign = falling ? -1 : 1;
  places.sort((a, b) => {
    const x = values[a], y = values[b];
    if (x !== x || y !== y) return (x !== x) - (y !== y);  // rows without a number come last
    return sign * (x - y) || a - b;
  });
  return Array.from(places, (place) => ids[place]);
}
