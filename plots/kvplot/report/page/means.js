// Means of a number over seeds, then over units, with intervals: the rule of the program's summary
// (kvbench: results/mean_interval.hpp), over the units that are chosen.

function quantile975(freedom) {
  if (freedom <= DATA.t975.length) return DATA.t975[freedom - 1];
  const z = 1.959963984540054, v = freedom;  // Abramowitz and Stegun 26.7.5
  return z + (z ** 3 + z) / (4 * v) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * v * v);
}

// The chosen units as a mask, 1 for those that a {layer, head, sequence} takes; null takes all.
function unitMask({ layer, head, sequence }) {
  return Uint8Array.from(DATA.units, (unit) => Number(
    (layer === null || unit.layer === layer) && (head === null || unit.kv_head === head) &&
    (sequence === null || textName(unit) === sequence)));
}

const DUMPS = new Set(DATA.units.map((unit) => unit.dump)).size;
// A text is a sequence of a dump.
const textName = (unit) => DUMPS > 1 ? `${unit.sequence} (${unit.dump.slice(0, 8)})` : unit.sequence;

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
    return { low: mean - half, high: mean + half, level, groups };
  }
  return { low: NaN, high: NaN, level: "", groups: 1 };
}

// Sum and count of a column over the cells of each group.
function groupMeans(groups, values, keep) {
  const sum = new Float64Array(groups.first.length), count = new Uint32Array(groups.first.length);
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (value !== value || !keep[CELLS.unit[i]]) continue;
    sum[groups.of[i]] += value;
    count[groups.of[i]]++;
  }
  return { sum, count };
}

// Per row of the settings' view (result and setting): mean, deviation over seeds, interval.
function computeMeans(path, keep) {
  const rows = DATA.results.length * DATA.settings.length;
  const values = CELLS.numbers[path];
  const blank = () => new Float64Array(rows).fill(NaN);
  const out = { mean: blank(), std: blank(), low: blank(), high: blank(), units: new Uint32Array(rows),
                cells: new Uint32Array(rows), seeds: new Uint32Array(rows), over: new Array(rows).fill("") };
  if (!values) return out;
  const perUnit = groupMeans(CELLS.rowUnit, values, keep);
  const perSeed = groupMeans(CELLS.rowSeed, values, keep);
  const unitsOf = new Map();
  CELLS.rowUnit.first.forEach((row, place) => {
    if (!perUnit.count[place]) return;
    if (!unitsOf.has(row)) unitsOf.set(row, { units: [], values: [] });
    const entry = unitsOf.get(row);
    entry.units.push(CELLS.rowUnit.second[place]);
    entry.values.push(perUnit.sum[place] / perUnit.count[place]);
    out.cells[row] += perUnit.count[place];
  });
  const spread = new Map();
  CELLS.rowSeed.first.forEach((row, place) => {
    if (!perSeed.count[place]) return;
    if (!spread.has(row)) spread.set(row, []);
    spread.get(row).push(perSeed.sum[place] / perSeed.count[place]);
  });
  for (const [row, { units, values: means }] of unitsOf) {
    const mean = means.reduce((sum, value) => sum + value, 0) / means.length;
    const interval = meanInterval(units, means, mean);
    const seeds = spread.get(row);
    const centre = seeds.reduce((sum, value) => sum + value, 0) / seeds.length;
    out.mean[row] = mean;
    out.low[row] = interval.low;
    out.high[row] = interval.high;
    out.over[row] = interval.groups > 1 ? `${interval.groups} ${interval.level}` : "";
    out.std[row] = Math.sqrt(seeds.reduce((sum, value) => sum + (value - centre) ** 2, 0) / seeds.length);
    out.seeds[row] = seeds.length;
    out.units[row] = means.length;
  }
  return out;
}

const cachedMeans = new Map();

// The same, computed once for a path and a choice of units.
function meansOf(path, choice) {
  const key = JSON.stringify([path, choice.layer, choice.head, choice.sequence]);
  if (!cachedMeans.has(key)) {
    if (cachedMeans.size > 60) cachedMeans.clear();
    cachedMeans.set(key, computeMeans(path, unitMask(choice)));
  }
  return cachedMeans.get(key);
}

// Mean over seeds and texts of one row, by layer and head: Map of "layer/head" to a number.
function headMeans(path, row, sequence) {
  const keep = unitMask({ layer: null, head: null, sequence });
  const values = CELLS.numbers[path], perUnit = new Map();
  for (const cell of cellsOfRow(row)) {
    const value = values[cell], unit = CELLS.unit[cell];
    if (value !== value || !keep[unit]) continue;
    const entry = perUnit.get(unit) || [0, 0];
    perUnit.set(unit, [entry[0] + value, entry[1] + 1]);
  }
  const byHead = new Map();
  for (const [unit, [sum, count]] of perUnit) {
    const { layer, kv_head: head } = DATA.units[unit], key = `${layer}/${head}`;
    const entry = byHead.get(key) || [0, 0];
    byHead.set(key, [entry[0] + sum / count, entry[1] + 1]);
  }
  return new Map([...byHead].map(([key, [sum, count]]) => [key, sum / count]));
}

// Cells of every row of the settings' view, by one pass.
const CELLS_OF_ROW = (() => {
  const lists = Array.from({ length: DATA.results.length * DATA.settings.length }, () => []);
  for (let cell = 0; cell < CELLS.count; cell++) lists[CELLS.row[cell]].push(cell);
  return lists;
})();
const cellsOfRow = (row) => CELLS_OF_ROW[row];
