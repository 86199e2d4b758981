// The embedded data, decoded: cells as columns.

export const STATUS = ["ok", "failed", "skipped"];
export const DATA = JSON.parse(document.getElementById("data").textContent);

function bytesOf(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

// Columns are little-endian, as every machine that runs a browser is.
const KINDS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array, f8: Float64Array };
const columnOf = (part) => new KINDS[part.type](bytesOf(part.data).buffer);

// Numbers of groups: pairs (a, b) of numbers below `a_count`, each pair once, in order of appearance.
function grouped(a, b, bCount) {
  const places = new Map(), of = new Uint32Array(a.length), first = [], second = [];
  for (let i = 0; i < a.length; i++) {
    const key = a[i] * bCount + b[i];
    let place = places.get(key);
    if (place === undefined) {
      place = first.length;
      places.set(key, place);
      first.push(a[i]);
      second.push(b[i]);
    }
    of[i] = place;
  }
  return { of, first: Uint32Array.from(first), second: Uint32Array.from(second) };
}

function decoded({ result, numbers, weighted, units }) {
  const cells = { count: result.count, numbers: {}, weights: {} };
  for (const name of ["setting", "unit", "status", "seed", "reason", "command"]) {
    cells[name] = Uint32Array.from(columnOf(result[name]));
  }
  numbers.forEach((path, place) => { cells.numbers[path] = columnOf(result.numbers[place]); });
  for (const path of weighted) cells.weights[path] = columnOf(result.weights[path]);
  cells.rowUnit = grouped(cells.setting, cells.unit, units.length);
  cells.rowSeed = grouped(cells.setting, cells.seed, Math.max(result.seeds.length, 1));
  return cells;
}

export const CELLS = decoded(DATA);
const IDS = DATA.result.id.hex === undefined ? null : bytesOf(DATA.result.id.hex);

export function idOf(cell) {
  if (!IDS) return DATA.result.id.words[cell];
  let text = "";
  for (let i = 16 * cell; i < 16 * cell + 16; i++) text += IDS[i].toString(16).padStart(2, "0");
  return text;
}

// The command that repeats cells: all of them if one run can.
export function commandOf(cells) {
  if (!cells.length) return "";
  const parts = DATA.result.commands;
  const first = parts[CELLS.command[cells[0]]];
  if (first.length < 2) return first[0];
  const same = cells.filter((cell) => CELLS.command[cell] === CELLS.command[cells[0]]);
  return first[0] + same.map(idOf).join(" --only ") + first[1].replace("repro/@", `repro/${idOf(same[0]).slice(0, 8)}`);
}

export const seedOf = (cell) => DATA.result.seeds[CELLS.seed[cell]];
export const reasonOf = (cell) => DATA.result.reasons[CELLS.reason[cell]];

const textOf = (value) => typeof value === "string" ? value : JSON.stringify(value);

// Parameters of a setting: those in which its label's settings differ, and all.
function describeSettings(settings) {
  const values = new Map();
  for (const { label, params } of settings) {
    if (!values.has(label)) values.set(label, { count: 0, names: new Map() });
    const entry = values.get(label);
    entry.count++;
    for (const name of Object.keys(params)) {
      if (!entry.names.has(name)) entry.names.set(name, []);
      entry.names.get(name).push(JSON.stringify(params[name]));
    }
  }
  for (const entry of values.values()) {
    entry.differing = new Set([...entry.names].filter(([, found]) => new Set(found).size > 1 || found.length < entry.count)
      .map(([name]) => name));
  }
  return settings.map(({ label, params }) => {
    const words = (chosen) => chosen.map((name) => `${name} ${textOf(params[name])}`).join(", ");
    const all = Object.keys(params);
    return { short: words(all.filter((name) => values.get(label).differing.has(name))), all: words(all) };
  });
}

export const DESCRIBED = describeSettings(DATA.settings);
export const LABELS = [...new Set(DATA.settings.map((setting) => setting.label))].sort();

// "errors.relative_l2.mean" as "relative l2, mean".
export function wordsOf(path) {
  const parts = path.split(".");
  if (parts[0] === "params") return parts.slice(1).join(".");
  if (parts[0] === "errors") parts.shift();
  const words = parts[0] === "memory" && parts[1] === "fraction" ? ["memory, as a part of the exact cache's"]
    : parts[0] === "memory" || parts[0] === "timing" ? [parts.join(", ")]
    : parts[0] === "mass" ? [`mass ${parts[1]}`, ...parts.slice(2)] : parts;
  return words.join(", ").replaceAll("_", " ");
}
