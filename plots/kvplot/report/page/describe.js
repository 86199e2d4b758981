import { CELLS, commandOf, DATA, DESCRIBED, seedOf, wordsOf } from "./data.js";
import { cellsOfRow, meansOf, sameUnits, textName } from "./means.js";
import { cellNumber, chosenCells, meanOf, shortNumber, VIEWS } from "./rows.js";
import { make, state } from "./state.js";
import { markIcon } from "./marks.js";

// Description of a row under the pointer: children of the hover box.
export function describe(id) {
  const view = VIEWS[state.view], setting = view.settingOf(id), { label } = DATA.settings[setting];
  const lines = [make("strong", {}, markIcon(label), ` ${label}`),
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
  const means = meansOf(state.metric, state), std = means.std[id];
  term(wordsOf(state.metric), `${shortNumber(means.mean[id])}${std ? ` ± ${std.toPrecision(1)} over seeds` : ""}`);
  if (means.over[id]) {
    term("95 %", `${shortNumber(means.low[id])} to ${shortNumber(means.high[id])}, Student's t over ${means.over[id]}`);
  }
  term(wordsOf(state.against), shortNumber(meanOf(state.against, id, state)));
  const same = sameUnits(state.metric, state);
  term("of", `${means.units[id]} units, ${means.cells[id]} cells${same.isLacking ? `; has ${same.has[id]} of ${same.every} units` : ""}`);
  const cells = chosenCells(cellsOfRow(id), state);
  lines.push(make("code", {}, commandOf(cells.slice(0, 1)) +
    (cells.length > 1 ? ` (the first of ${cells.length} cells; column "command" has all)` : "")));
  return lines;
}
