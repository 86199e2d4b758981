// Means of a number over seeds, then over units, with intervals: the rule of the program's summary
// (kvbench: results/mean_interval.hpp), over those of the chosen units that every method shown has.

import { CELLS, DATA, STATUS, wordsOf } from "./data.js";

function quantile975(freedom) {
  if (freedom <= DATA.t975.length) return DATA.t975[freedom - 1];
  const z = 1.959963984540054, v = freedom;  // Abramowitz and Stegun 26.7.5
  return z + (z ** 3 + z) / (4 * v) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * v * v);
}

// The chosen units as a mask, 1 for those that a {layer, head, sequence} takes; null takes all.
export function unitMask({ layer, head, sequence }) {
  return Uint8Array.from(DATA.units, (unit) => Number(
    (layer === null || unit.layer === layer) && (head === null || unit.kv_head === head) &&
    (sequence === null || textName(unit) === sequence)));
}

const DUMPS = new Set(DATA.units.map((unit) => unit.dump)).size;
// A text is a sequence of a dump.
export const textName = (unit) => DUMPS > 1 ? `${unit.sequence} (${unit.dump.slice(0, 8)})` : unit.sequence;

// Units numbered by text and by layer, so that groups are compared as numbers.
const NESTING = (() => {
  const texts = new Map(), text = new Uint32Array(DATA.units.length);
  DATA.units.forEach((unit, place) => {
    const name = JSON.stringify([unit.dump, unit.sequence]);
    if (!texts.has(name)) texts.set(name, texts.size);
    text[place] = texts.get(name);
  });
  return { text, layer: Uint32Array.from(DATA.units, (unit) => unit.layer) };
})();

// {low, high, level, groups} of the mean of values[i] of units[i]; low is NaN if there is but one group.
function meanInterval(units, values, mean) {
  const n = values.length;
  for (const [level, numbers] of [["texts", NESTING.text], ["layers", NESTING.layer], ["KV heads", null]]) {
    const sums = new Map();
    for (let i = 0; i < n; i++) {
      const group = numbers ? numbers[units[i]] : i;
      sums.set(group, (sums.get(group) || 0) + values[i] - mean);
    }
    const groups = sums.size;
    if (groups < 2) continue;
    let squares = 0;
    for (const sum of sums.values()) squares += (sum / n) ** 2;
    const half = quantile975(groups - 1) * Math.sqrt(squares * groups / (groups - 1));
    if (values.some((value) => value < 0)) return { low: mean - half, high: mean + half, level, groups };
    const factor = mean > 0 ? Math.exp(half / mean) : 1;  // the log scale: an error is not negative
    return { low: mean / factor, high: mean * factor, level, groups };
  }
  return { low: NaN, high: NaN, level: "", groups: 1 };
}

// ---- the units that are compared (kvplot: units.py)

const MAX_NAMED = 8, FEW = 5;
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// The comparison of the rows whose method is shown: {units, rows} as masks, `said` of the others,
// and for each row how many units it `has` with a number of `path`, of how many that any was asked for.
function computeSame(path, choice) {
  const chosen = unitMask(choice), U = DATA.units.length, rows = DATA.settings.length;
  const values = CELLS.numbers[path], isNull = (cell) => !values || values[cell] !== values[cell];
  const visible = DATA.settings.map(({ label }) => !choice.hidden.has(label));
  const has = Array.from({ length: rows }, () => new Uint8Array(U)), asked = new Uint8Array(U);
  const without = new Set();
  let nulls = 0, finished = 0;
  for (let cell = 0; cell < CELLS.count; cell++) {
    const unit = CELLS.unit[cell];
    if (!chosen[unit] || !visible[CELLS.setting[cell]]) continue;
    asked[unit] = 1;
    if (STATUS[CELLS.status[cell]] !== "ok") continue;
    finished++;
    if (isNull(cell)) {
      nulls++;
      without.add(DATA.settings[CELLS.setting[cell]].label);
    } else has[CELLS.setting[cell]][unit] = 1;
  }
  const sum = (mask) => mask.reduce((count, value) => count + value, 0);
  const count = Uint32Array.from(has, sum), every = sum(asked), said = [];
  const taking = [...count.keys()].filter((row) => count[row]);
  const labelOf = (row) => DATA.settings[row].label;
  const inAll = (masks) => asked.map((value, unit) => Number(value && masks.every((mask) => mask[unit])));
  const inAny = (masks) => asked.map((_, unit) => Number(masks.some((mask) => mask[unit])));
  let units = inAll(taking.map((row) => has[row])), compared = new Uint8Array(rows).fill(1);
  if (taking.length && !sum(units)) {
    // As units.py: those that every method has in some setting.
    const methods = d3.nest().key(labelOf).entries(taking);
    units = inAll(methods.map((method) => inAny(method.values.map((row) => has[row]))));
    compared = Uint8Array.from(has, (mask) => Number(units.every((value, unit) => !value || mask[unit])));
  }
  if (taking.length && !sum(units)) {
    units = asked;
    compared.fill(1);
    said.push("No KV head has every method; each mean is over those that its method has, and they are not comparable. " +
              "Switch methods off in the legend to compare the others.");
  } else if (taking.length && sum(units) < every) {
    const left = taking.filter((row) => !compared[row]).length;
    said.push(`Over ${sum(units)} of ${every} KV heads: those that every method shown has` +
              `${left ? `, without ${left} settings that lack some of them` : ""}.`);
  }
  const counts = new Map();
  for (const row of taking) {
    if (count[row] < every) counts.set(labelOf(row), [...(counts.get(labelOf(row)) ?? []), count[row]]);
  }
  const lacking = [...counts].map(([label, found]) =>
    `${label} has ${[...new Set([d3.min(found), d3.max(found)])].join(" to ")} of ${every}`);
  if (lacking.length > MAX_NAMED) lacking.splice(MAX_NAMED, Infinity, `${lacking.length - MAX_NAMED} more methods lack some`);
  if (lacking.length) said.push(`${lacking.join(", ")} KV heads.`);
  if (nulls && taking.length) {
    said.push(`Left out, no number for ${wordsOf(path)}: ${nulls} of ${finished} finished cells (${[...without].sort().join(", ")}).`);
  }
  return { units, rows: compared, has: count, every, said: said.join(" "), isLacking: lacking.length > 0 };
}

// Computed once for a choice.
function cached(compute) {
  const found = new Map();
  return (path, choice) => {
    const key = JSON.stringify([path, choice.metric, choice.layer, choice.head, choice.sequence, [...choice.hidden]]);
    if (!found.has(key)) {
      if (found.size > 60) found.clear();
      found.set(key, compute(path, choice));
    }
    return found.get(key);
  };
}
export const sameUnits = cached(computeSame);

// Sum and count of a column over the cells of each group, of those that `keep` has; of a part of the
// exact cache's bytes weighted by these.
function groupMeans(groups, values, weights, keep) {
  const sum = new Float64Array(groups.first.length), weight = new Float64Array(groups.first.length);
  const count = new Uint32Array(groups.first.length);
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (value !== value || !keep(i)) continue;
    const by = weights ? weights[i] : 1;
    sum[groups.of[i]] += by * value;
    weight[groups.of[i]] += by;
    count[groups.of[i]]++;
  }
  return { sum, weight, count };
}

// By setting how many seeds its finished cells have, of those that `keep` has.
function seedCounts(keep) {
  const { of, first } = CELLS.rowSeed, isThere = new Uint8Array(first.length);
  for (let cell = 0; cell < CELLS.count; cell++) {
    if (STATUS[CELLS.status[cell]] === "ok" && keep(cell)) isThere[of[cell]] = 1;
  }
  const counts = new Uint32Array(DATA.settings.length);
  first.forEach((row, place) => { counts[row] += isThere[place]; });
  return counts;
}

// Per row of the settings' view: mean, deviation over seeds, interval. A row
// that lacks the number in a unit that is compared has no mean.
function computeMeans(path, choice) {
  const rows = DATA.settings.length, same = sameUnits(choice.metric, choice);
  const values = CELLS.numbers[path], weights = CELLS.weights[path];
  const blank = () => new Float64Array(rows).fill(NaN);
  const out = { mean: blank(), std: blank(), low: blank(), high: blank(), units: new Uint32Array(rows),
                cells: new Uint32Array(rows), seeds: new Uint32Array(rows), groups: new Uint32Array(rows),
                over: new Array(rows).fill("") };
  if (!values) return out;
  const isCompared = (cell) => same.units[CELLS.unit[cell]];
  const perUnit = groupMeans(CELLS.rowUnit, values, weights, isCompared);
  const wanted = groupMeans(CELLS.rowUnit, CELLS.numbers[choice.metric], null, isCompared).count;
  // Seeds are compared over the units that have every seed.
  const seedsOf = seedCounts(isCompared);
  const perSeed = groupMeans(CELLS.rowSeed, values, weights, (cell) =>
    isCompared(cell) && perUnit.count[CELLS.rowUnit.of[cell]] >= seedsOf[CELLS.setting[cell]]);
  const unitsOf = new Map(), lacking = new Set();
  CELLS.rowUnit.first.forEach((row, place) => {
    if (!same.rows[row] || (wanted[place] && !perUnit.count[place])) lacking.add(row);
    if (!perUnit.count[place] || !wanted[place]) return;
    if (!unitsOf.has(row)) unitsOf.set(row, { units: [], values: [], weights: [] });
    const entry = unitsOf.get(row);
    entry.units.push(CELLS.rowUnit.second[place]);
    entry.values.push(perUnit.sum[place] / perUnit.weight[place]);
    entry.weights.push(perUnit.weight[place] / perUnit.count[place]);
    out.cells[row] += perUnit.count[place];
  });
  const spread = new Map();
  CELLS.rowSeed.first.forEach((row, place) => {
    if (!perSeed.count[place]) return;
    if (!spread.has(row)) spread.set(row, []);
    spread.get(row).push(perSeed.sum[place] / perSeed.weight[place]);
  });
  for (const [row, { units, values: means, weights: bytes }] of unitsOf) {
    if (lacking.has(row)) {
      out.cells[row] = 0;
      continue;
    }
    const total = bytes.reduce((sum, value) => sum + value, 0);
    const mean = means.reduce((sum, value, i) => sum + bytes[i] * value, 0) / total;
    const seeds = spread.get(row) ?? [];  // none: no unit has every seed, and the deviation is NaN
    const centre = seeds.reduce((sum, value) => sum + value, 0) / seeds.length;
    out.mean[row] = mean;
    if (!weights) {
      const interval = meanInterval(units, means, mean);
      out.low[row] = interval.low;
      out.high[row] = interval.high;
      out.groups[row] = interval.groups;
      out.over[row] = interval.groups > 1 ? `${interval.groups} ${interval.level}` : "";
    }
    out.std[row] = Math.sqrt(seeds.reduce((sum, value) => sum + (value - centre) ** 2, 0) / seeds.length);
    out.seeds[row] = seedsOf[row];
    out.units[row] = means.length;
  }
  return out;
}
export const meansOf = cached(computeMeans);

// Advice that would narrow intervals over few groups.
export function narrower(means, rows) {
  const few = rows.find((row) => means.groups[row] > 1 && means.groups[row] < FEW);
  if (few === undefined) return "";
  const more = means.over[few].endsWith("texts") ? "more texts" : "more texts or layers";
  return `${means.over[few]} carry these intervals; ${more} narrow them: data/dumps.sh.`;
}

// Cells of every row of the settings' view, by one pass.
export const CELLS_OF_ROW = (() => {
  const lists = DATA.settings.map(() => []);
  for (let cell = 0; cell < CELLS.count; cell++) lists[CELLS.setting[cell]].push(cell);
  return lists;
})();
export const cellsOfRow = (row) => CELLS_OF_ROW[row];
