// Draws everything from the state; the legend, notes and words about a point.

function drawLegend() {
  const legend = element("legend"), shown = LABELS.filter((label) => !state.hidden.has(label));
  const button = (label) => {
    const made = make("button", { type: "button", "aria-pressed": String(!state.hidden.has(label)),
                                  "data-label": label, title: "switch on or off; a double click, or Shift and a click: this one alone" }, markIcon(label), ` ${label}`);
    const alone = () => choose({ hidden: new Set(LABELS.filter((other) => other !== label)) });
    made.addEventListener("click", (event) => {
      if (event.shiftKey) {
        alone();
        focusLegend(label);
        return;
      }
      const hidden = new Set(state.hidden);
      if (!hidden.delete(label)) hidden.add(label);
      choose({ hidden });
      focusLegend(label);
    });
    made.addEventListener("dblclick", alone);
    return made;
  };
  const all = make("button", { type: "button", class: "plain" }, shown.length === LABELS.length ? "none" : "all");
  all.addEventListener("click", () => choose({ hidden: new Set(shown.length === LABELS.length ? LABELS : []) }));
  legend.replaceChildren(...LABELS.map(button), all);
  if (DATA.results.length > 1) legend.append(make("p", { class: "quiet" }, "A is filled, B is hollow"));
}
const focusLegend = (label) => element("legend").querySelector(`[data-label="${CSS.escape(label)}"]`)?.focus();

// What is said of a row where it is pointed at: children of the hover box.
function describe(id, result) {
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

function drawNotes() {
  const { x, y } = scene, without = listed.ids.length * (state.view === "pairs" ? 2 : 1) - points.count;
  const notes = [];
  if (DATA.meanings[state.metric]) notes.push(`${capital(wordsOf(state.metric))}: ${DATA.meanings[state.metric]}.`);
  if (state.view !== "cells") notes.push(sameUnits(state.metric, state).said, narrower(meansOf(state.metric, state), listed.ids));
  if (y.outside) notes.push(`${y.outside} point${y.outside > 1 ? "s" : ""} below ${ROUNDING} (exact to rounding), drawn on the lower edge.`);
  if (x.outside) notes.push(`${x.outside} points at or below 0, drawn on the left edge.`);
  if (without > 0) notes.push(`${without} without these numbers (failed, skipped or null), in the table alone.`);
  if (state.view !== "cells") notes.push("A point is a setting's mean over seeds, then over units; lines join the settings that no other of their method beats.");
  notes.push("Drag to choose a range; Escape takes it back.");
  element("notes").replaceChildren(notes.filter(Boolean).join(" "));
}

function drawChosen() {
  const parts = [];
  if (state.range) parts.push("a range of the scatter (Escape: all)");
  if (state.chosen) {
    const { label } = DATA.settings[state.chosen.setting];
    parts.push(`chosen: ${label} ${DESCRIBED[state.chosen.setting].all}`);
  }
  if (listed.unknown.length) parts.push(`nothing is called ${listed.unknown.join(", ")}: ignored`);
  element("chosen").textContent = parts.join("; ");
}

function draw() {
  const { ids } = list();
  drawLegend();
  drawScatter(ids);
  drawHeat(ids);
  drawTable();
  drawColumnChoice();
  drawNotes();
  drawChosen();
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (!element("hover").hidden) pointAt(-1);
  if (state.range) choose({ range: null });
  else if (state.chosen) choose({ chosen: null });
  else if (state.layer !== null || state.head !== null) choose({ layer: null, head: null });
});
function onPaper(begins) {
  if (!METRICS.length) return;
  printing = begins;
  stamps.clear();
  drawScatter(listed.ids);
  drawTable(begins ? PRINTED : PAGE);
}
window.addEventListener("beforeprint", () => onPaper(true));
window.addEventListener("afterprint", () => onPaper(false));

function start() {
  if (!METRICS.length) return;  // no cell finished: the still parts say why
  element("explore").hidden = false;
  fillControls();
  readAddress();
  showControls();
  listenToControls();
  draw();
  new ResizeObserver(() => {
    if (scene && (plot.clientWidth !== scene.width || plot.clientHeight !== scene.height)) draw();
  }).observe(plot);
  window.addEventListener("hashchange", () => {
    if (element(location.hash.slice(1))) return;  // a link within the page
    Object.assign(state, fresh());
    readAddress();
    showControls();
    draw();
  });
}
start();
