import { CELLS, commandOf, DATA, DESCRIBED, resultName, S, seedOf, wordsOf } from "./data.js";
import { cellsOfRow, meansOf, sameUnits, textName } from "./means.js";
import { cellNumber, chosenCells, meanOf, shortNumber, VIEWS } from "./rows.js";
import { make, state } from "./state.js";
import { markIcon } from "./marks.js";

// Description of a row under the pointer: children of the hover box.
export function describe(id, result) {
  const view = VIEWS[state.view], setting = view.settingOf(id), { label } = DATA.settings[setting];
  const row = state.view === "pairs" ? result * S + id : id, name = resultName(result ?? 0);
  const lines = [make("strong", {}, markIcon(label, DATA.results.length > 1 ? result : 0), ` ${name ? `${name}: ` : ""}${label}`),
                 make("span", {}, DESCRIBED[setting].short || DESCRIBED[setting].all)];
  const term = (words, text) => lines.push(make("span", {}, make("em", {}, `${words} `), text));
  if (state.view === "cells") {
    const unit = DATA.units[CELLS.unit[id]], seed = seedOf(id);
    term("unit", `${textName(unit)}, layer ${unit.layer}, head ${unit.kv_head}${seed === null ? "" : `, seed ${seed}`}`);
    term(wordsOf(state.metric), shortNumber(cellNumber(state.metric, id)));
    term(wordsOf(state.against), shortNumber(cellNumber(state.against, id)));
    lines.push(make("code", {}, commandOf([id])));
    return lines;
  }
  const means = meansOf(state.metric, state), std = means.std[row];
  term(wordsOf(state.metric), `${shortNumber(means.mean[row])}${std ? ` ± ${std.toPrecision(1)} over seeds` : ""}`);
  if (means.over[row]) {
    term("95 %", `${shortNumber(means.low[row])} to ${shortNumber(means.high[row])}, Student's t over ${means.over[row]}`);
  }
  term(wordsOf(state.against), shortNumber(meanOf(state.against, row, state)));
  if (state.view === "pairs") {
    const found = DATA.comparison?.verdicts[id]?.[state.metric];
    term("B / A", shortNumber(means.mean[S + id] / means.mean[id]) + (found ? `, ${found[0]}` : ""));
  }
  const same = sameUnits(state.metric, state);
  term("of", `${means.units[row]} units, ${means.cells[row]} cells${same.isLacking ? `; has ${same.has[row]} of ${same.every} units` : ""}`);
  const cells = chosenCells(cellsOfRow(row), state);
  lines.push(make("code", {}, commandOf(cells.slice(0, 1)) +
    (cells.length > 1 ? ` (the first of ${cells.length} cells; column "command" has all)` : "")));
  return lines;
}
