// One setting by layer and KV head: a map whose fields choose a layer and head.

import { DATA, DESCRIBED, resultName, S, wordsOf } from "./data.js";
import { headMeans } from "./means.js";
import { shortNumber, VIEWS } from "./rows.js";
import { choose, element, make, OF_UNITS, state } from "./state.js";
import { markIcon } from "./marks.js";
import { ROUNDING } from "./scatter.js";
import { list } from "./table.js";

const heatColour = d3.scaleLinear().domain([0, 0.5, 1]).range(DATA.heat).clamp(true);

// The chosen setting, else the first of the table that is not exact to rounding.
function heatSetting(ids) {
  if (state.chosen) return state.chosen.setting;
  const view = VIEWS[state.view], id = ids.find((each) => view.number(state.metric, each, state) >= ROUNDING) ?? ids[0];
  return id === undefined ? null : view.settingOf(id);
}

export function drawHeat(ids) {
  const box = element("heat"), setting = heatSetting(ids);
  box.replaceChildren();
  if (setting === null || OF_UNITS.layer.length * OF_UNITS.head.length < 2) return;
  const maps = DATA.results.map((_, r) => headMeans(state.metric, r * S + setting, state.sequence));
  const values = maps.flatMap((map) => [...map.values()]);
  if (!values.length) return;
  box.append(make("h3", {}, `${wordsOf(state.metric)} by layer and head`));
  const what = make("p", {}, markIcon(DATA.settings[setting].label), ` ${DATA.settings[setting].label} ${DESCRIBED[setting].short}`);
  box.append(what);
  const low = d3.min(values), high = d3.max(values), log = state.yscale === "log" && low > 0;
  const share = high > low ? (log ? d3.scaleLog() : d3.scaleLinear()).domain([low, high]).range([0, 1]) : () => 0.5;
  maps.forEach((map, r) => {
    if (!map.size) return;
    if (maps.length > 1) box.append(make("p", { class: "quiet" }, resultName(r)));
    box.append(heatMap(map, share));
  });
  box.append(heatKey(low, high));
}

function heatKey(low, high) {
  const key = make("p", { class: "quiet key" }, shortNumber(low), " ");
  const bar = d3.create("svg").attr("width", 90).attr("height", 10).attr("aria-hidden", "true");
  for (let i = 0; i < 30; i++) bar.append("rect").attr("x", 3 * i).attr("width", 3.2).attr("height", 10).attr("fill", heatColour(i / 29));
  key.append(bar.node(), ` ${shortNumber(high)}${DATA.results.length > 1 ? ", A and B alike" : ""}`);
  return key;
}

function heatMap(map, share) {
  const { layer: rows, head: columns } = OF_UNITS, left = 30, top = 16;
  const width = Math.max(7, Math.min(64, 300 / columns.length)), height = Math.max(7, Math.min(24, 420 / rows.length));
  const picture = d3.create("svg").attr("role", "grid").attr("aria-label", "layers by KV heads")
    .attr("viewBox", `0 0 ${left + width * columns.length + 1} ${top + height * rows.length + 1}`)
    .attr("width", left + width * columns.length + 1);
  const every = (list, size) => Math.max(1, Math.ceil(14 / size));
  columns.forEach((head, c) => c % every(columns, width) || picture.append("text").attr("x", left + (c + 0.5) * width)
    .attr("y", 11).attr("text-anchor", "middle").text(c ? head : columns.length * width > 100 ? `head ${head}` : head));
  rows.forEach((layer, r) => r % every(rows, height) || picture.append("text").attr("x", left - 5)
    .attr("y", top + (r + 0.5) * height + 4).attr("text-anchor", "end").text(`L${layer}`));
  rows.forEach((layer, r) => columns.forEach((head, c) => {
    const value = map.get(`${layer}/${head}`);
    if (value === undefined) return;
    const chosen = state.layer === layer && state.head === head, field = picture.append("g").attr("class", "field")
      .attr("role", "gridcell").attr("tabindex", r || c ? -1 : 0).attr("data-at", `${r},${c}`)
      .attr("aria-selected", chosen).attr("aria-label", `layer ${layer}, head ${head}: ${shortNumber(value)}`);
    field.append("title").text(`layer ${layer}, head ${head}: ${shortNumber(value)}`);
    field.append("rect").attr("x", left + c * width).attr("y", top + r * height).attr("width", width).attr("height", height)
      .attr("fill", heatColour(share(value)));
    if (width >= 40 && height >= 14) {
      field.append("text").attr("x", left + (c + 0.5) * width).attr("y", top + (r + 0.5) * height + 4)
        .attr("text-anchor", "middle").attr("fill", share(value) > 0.55 ? "#fff" : "#111").text(shortNumber(Number(value.toPrecision(2))));
    }
    field.on("click", () => choose(chosen ? { layer: null, head: null } : { layer, head }));
  }));
  picture.node().addEventListener("keydown", (event) => heatKeys(event, picture.node()));
  return picture.node();
}

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function heatKeys(event, picture) {
  const field = event.target.closest(".field");
  if (!field) return;
  if (event.key === "Enter" || event.key === " ") {
    const at = field.dataset.at;
    field.dispatchEvent(new MouseEvent("click"));
    element("heat").querySelector(`[data-at="${at}"]`)?.focus();
    event.preventDefault();
    return;
  }
  const step = STEPS[event.key];
  if (!step) return;
  event.preventDefault();
  const [r, c] = field.dataset.at.split(",").map(Number);
  const next = picture.querySelector(`[data-at="${r + step[0]},${c + step[1]}"]`);
  if (!next) return;
  field.setAttribute("tabindex", -1);
  next.setAttribute("tabindex", 0);
  next.focus();
}
