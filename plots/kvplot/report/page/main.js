// Draws everything from the state; the legend and notes.

import { DATA, DESCRIBED, LABELS, wordsOf } from "./data.js";
import { capital, meansOf, narrower, sameUnits } from "./means.js";
import { choose, element, fillControls, fresh, listenToControls, make, METRICS, readAddress, showControls, state,
  whenChosen } from "./state.js";
import { dark, markIcon, paintOnPaper, stamps } from "./marks.js";
import { drawScatter, plot, pointAt, points, ROUNDING, scene } from "./scatter.js";
import { chooseRow, drawColumnChoice, drawTable, list, listed, PAGE, PRINTED, table } from "./table.js";

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
}
const focusLegend = (label) => element("legend").querySelector(`[data-label="${CSS.escape(label)}"]`)?.focus();

function drawNotes() {
  const { x, y } = scene, without = listed.ids.length - points.count;
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
  paintOnPaper(begins);
  drawScatter(listed.ids);
  drawTable(begins ? PRINTED : PAGE);
}
dark.addEventListener("change", () => {
  stamps.clear();
  draw();
});
window.addEventListener("beforeprint", () => onPaper(true));
window.addEventListener("afterprint", () => onPaper(false));

function start() {
  if (!METRICS.length) return;  // no cell finished: the still parts say why
  element("explore").hidden = false;
  whenChosen(draw);
  plot.addEventListener("choose", ({ detail }) => chooseRow(detail));
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
