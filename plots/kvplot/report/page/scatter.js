// The scatter: points on a canvas, the grid in an SVG below, axes and marks of what is pointed at in one above.

import { DATA, wordsOf } from "./data.js";
import { meansOf } from "./means.js";
import { ofSetting, shortNumber, VIEWS } from "./rows.js";
import { choose, element, isChosen, state } from "./state.js";
import { DASHES, lineColour, LOOKS, stampOf } from "./marks.js";
import { describe } from "./describe.js";

export const ROUNDING = 1e-9;  // errors below are exact to rounding; on a logarithmic axis they lie on its edge
const MARGIN = { left: 58, right: 14, top: 12, bottom: 44 };
export const plot = element("plot");
const canvas = plot.querySelector("canvas"), svg = d3.select(plot).select(".over");
const layers = {
  grid: d3.select(plot).select(".under").append("g").attr("class", "grid"), x: svg.append("g").attr("class", "axis"),
  y: svg.append("g").attr("class", "axis"), brush: svg.append("g"), marks: svg.append("g").attr("class", "marks"),
  words: svg.append("g").attr("class", "words"),
};
// The drawn points: each one's row number (id) and pixels.
export let points = { count: 0, id: [], x: [], y: [], px: [], py: [] };
export let scene = null;
let tree = null, current = -1;

function gather(ids) {
  const view = VIEWS[state.view], found = { id: [], x: [], y: [] };
  for (const id of ids) {
    const x = view.number(state.against, id, state), y = view.number(state.metric, id, state);
    if (x !== x || y !== y) continue;
    found.id.push(id);
    found.x.push(x);
    found.y.push(y);
  }
  const count = found.id.length;
  return { ...found, count, px: new Float64Array(count), py: new Float64Array(count) };
}

// A scale, and the smallest value that it shows: smaller ones are drawn on the edge.
function scaleOf(values, kind, range, floor) {
  let low = Infinity, high = -Infinity, edge = -Infinity, outside = 0;
  const log = kind === "log";
  if (log) {
    const above = values.some((value) => value >= floor) ? floor : Number.MIN_VALUE;
    edge = above;
    outside = values.reduce((count, value) => count + (value < above), 0);
  }
  for (const value of values) {
    if (value < edge) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) [low, high] = log ? [0.1, 1] : [0, 1];
  if (log) {
    const pad = Math.max((high / low) ** 0.05, 1.04);
    return { scale: d3.scaleLog().domain([low / pad / (outside ? pad : 1), high * pad]).range(range), edge: low / pad / pad, outside };
  }
  const pad = (high - low || Math.abs(high) || 1) * 0.05, from = low >= 0 && low < 0.5 * high ? 0 : low - pad;
  return { scale: d3.scaleLinear().domain([from, high + pad]).range(range), edge: -Infinity, outside: 0 };
}

function ticksOf(scale, kind, pixels) {
  if (kind !== "log") return scale.ticks(Math.max(2, Math.floor(pixels / 70)));
  const [low, high] = scale.domain(), decades = Math.log10(high / low), ticks = [];
  const steps = decades < 1 ? [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9] : decades < 3.2 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(decades / Math.max(2, pixels / 45)));
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    if (power % every) continue;
    for (const step of steps) {
      const value = Number(`${step}e${power}`);
      if (value >= low && value <= high) ticks.push(value);
    }
  }
  return ticks;
}

export function drawScatter(ids) {
  const width = plot.clientWidth, height = plot.clientHeight;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  d3.select(plot).selectAll(".under, .over").attr("viewBox", `0 0 ${width} ${height}`);
  points = gather(ids);
  const x = scaleOf(points.x, state.xscale, [MARGIN.left, width - MARGIN.right], 1e-12);
  const y = scaleOf(points.y, state.yscale, [height - MARGIN.bottom, MARGIN.top], ROUNDING);
  scene = { x, y, width, height, ratio };
  for (let i = 0; i < points.count; i++) {
    points.px[i] = points.x[i] < x.edge ? MARGIN.left : x.scale(points.x[i]);
    points.py[i] = points.y[i] < y.edge ? height - MARGIN.bottom : y.scale(points.y[i]);
  }
  tree = null;
  drawAxes();
  paint();
  drawBrush();
  pointAt(-1);
  markChosen();
}

function drawAxes() {
  const { x, y, width, height } = scene;
  const bottom = height - MARGIN.bottom, xTicks = ticksOf(x.scale, state.xscale, width), yTicks = ticksOf(y.scale, state.yscale, height);
  const axis = (make_, scale, ticks) => make_(scale).tickValues(ticks).tickFormat(shortNumber).tickSize(4);
  layers.x.attr("transform", `translate(0,${bottom})`).call(axis(d3.axisBottom, x.scale, xTicks));
  layers.y.attr("transform", `translate(${MARGIN.left},0)`).call(axis(d3.axisLeft, y.scale, yTicks));
  const path = xTicks.map((tick) => `M${x.scale(tick)},${MARGIN.top}V${bottom}`).join("") +
    yTicks.map((tick) => `M${MARGIN.left},${y.scale(tick)}H${width - MARGIN.right}`).join("");
  layers.grid.selectAll("path").data([path]).enter().append("path");
  layers.grid.select("path").attr("d", path);
  const words = [
    { text: wordsOf(state.against), x: (MARGIN.left + width - MARGIN.right) / 2, y: height - 8, turn: 0 },
    { text: wordsOf(state.metric), x: 13, y: (MARGIN.top + bottom) / 2, turn: -90 },
  ];
  const texts = layers.words.selectAll("text").data(words);
  texts.enter().append("text").attr("text-anchor", "middle").merge(texts)
    .attr("transform", (word) => `translate(${word.x},${word.y}) rotate(${word.turn})`).text((word) => word.text);
}

const DOTS = 5000;  // more points than this are drawn as dots, without their markers

function paint() {
  const pen = canvas.getContext("2d"), { ratio, width, height } = scene;
  if (points.count > DOTS) {
    pen.putImageData(dots(pen.createImageData(canvas.width, canvas.height)), 0, 0);
    return;
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  if (state.frontier && state.view === "settings") drawFrontiers(pen);
  if (state.intervals && state.view === "settings") drawIntervals(pen);
  const radius = points.count > 2000 ? 3 : points.count > 500 ? 4 : 5.5;
  pen.globalAlpha = points.count > 500 ? 0.75 : 1;
  const view = VIEWS[state.view];
  let previous = "", stamp = null;
  for (let i = 0; i < points.count; i++) {
    const { label } = DATA.settings[view.settingOf(points.id[i])];
    if (label !== previous) {
      stamp = stampOf(label, radius, ratio);
      previous = label;
    }
    pen.drawImage(stamp.canvas, points.px[i] - stamp.size / 2, points.py[i] - stamp.size / 2, stamp.size, stamp.size);
  }
  pen.globalAlpha = 1;
}

// Every point as a few pixels, blended over one another: 100,000 take some
// milliseconds, where as many calls of the canvas take seconds. Points are taken in a scattered order,
// so that no method covers those before it.
function dots(picture) {
  const { data, width, height } = picture, size = Math.round(2.5 * scene.ratio), view = VIEWS[state.view];
  const colours = new Map(Object.entries(LOOKS).map(([label, { colour }]) => [label, d3.rgb(lineColour(colour))]));
  const ofSetting = DATA.settings.map(({ label }) => colours.get(label));
  const n = points.count, stride = 7919 % n ? 7919 : 7907;
  for (let k = 0, i = 0; k < n; k++, i = (i + stride) % n) {
    const { r, g, b } = ofSetting[view.settingOf(points.id[i])];
    const left = Math.round(points.px[i] * scene.ratio) - size, top = Math.round(points.py[i] * scene.ratio) - size;
    for (let dy = 0; dy <= 2 * size; dy++) {
      for (let dx = 0; dx <= 2 * size; dx++) {
        const far = (dx - size) ** 2 + (dy - size) ** 2, x = left + dx, y = top + dy;
        if (far > size * size || x < 0 || y < 0 || x >= width || y >= height) continue;
        const at = 4 * (y * width + x), under = data[at + 3], alpha = under + (255 - under) * 0.6;
        const share = 153 / alpha < 1 ? 153 / alpha : 1;
        data[at] += (r - data[at]) * share;
        data[at + 1] += (g - data[at + 1]) * share;
        data[at + 2] += (b - data[at + 2]) * share;
        data[at + 3] = alpha;
      }
    }
  }
  return picture;
}

const labelOf = (point) => DATA.settings[VIEWS[state.view].settingOf(points.id[point])].label;

// Per label the settings that no other of them beats in both axes, joined.
function drawFrontiers(pen) {
  const series = new Map();
  for (let i = 0; i < points.count; i++) {
    const key = labelOf(i);
    if (!series.has(key)) series.set(key, []);
    series.get(key).push(i);
  }
  pen.lineWidth = 1.5;
  for (const members of series.values()) {
    members.sort((a, b) => points.x[a] - points.x[b] || points.y[a] - points.y[b]);
    let least = Infinity;
    const line = members.filter((i) => points.y[i] < least && ((least = points.y[i]), true));
    const look = LOOKS[labelOf(members[0])];
    pen.strokeStyle = lineColour(look.colour);
    pen.globalAlpha = 0.75;
    pen.setLineDash(DASHES[look.variant % DASHES.length]);
    pen.beginPath();
    line.forEach((i) => pen.lineTo(points.px[i], points.py[i]));
    pen.stroke();
  }
  pen.setLineDash([]);
  pen.globalAlpha = 1;
}

// Ends of a point's interval in pixels, kept within the axes.
function intervalOf(point) {
  if (state.view === "cells") return null;
  const means = meansOf(state.metric, state), row = points.id[point];
  const bottom = scene.height - MARGIN.bottom, { scale, edge } = scene.y;
  if (means.low[row] !== means.low[row]) return null;
  const place = (value) => Math.min(bottom, Math.max(MARGIN.top, value <= 0 && state.yscale === "log" || value < edge ? bottom : scale(value)));
  return [place(means.low[row]), place(means.high[row])];
}

function drawIntervals(pen) {
  pen.lineWidth = 1;
  for (let i = 0; i < points.count; i++) {
    const ends = intervalOf(i);
    if (!ends) continue;
    pen.strokeStyle = lineColour(LOOKS[labelOf(i)].colour);
    pen.globalAlpha = 0.6;
    pen.beginPath();
    pen.moveTo(points.px[i], ends[0]);
    pen.lineTo(points.px[i], ends[1]);
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

// ---- choosing a range with the mouse

let brushing = false;
const brush = d3.brush().filter(() => !d3.event.button && !d3.event.ctrlKey && !d3.event.touches)
  .on("start brush", () => { brushing = d3.event.selection !== null; })
  .on("end", () => {
    const chosen = d3.event.selection;
    if (!chosen || !d3.event.sourceEvent) return;
    const [[left, top], [right, bottom]] = chosen;
    const { x, y, height } = scene, floor = bottom > height - MARGIN.bottom - 2 ? -Infinity : y.scale.invert(bottom);
    choose({ range: { x: [left < MARGIN.left + 2 ? -Infinity : x.scale.invert(left), x.scale.invert(right)], y: [floor, y.scale.invert(top)] } });
  });

function drawBrush() {
  const { width, height } = scene;
  brush.extent([[MARGIN.left, MARGIN.top], [width - MARGIN.right, height - MARGIN.bottom]]);
  layers.brush.call(brush).call(brush.move, null);
}

// ---- pointing: by mouse, finger and keys

const PLAIN = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"];

function nearest(event) {
  const box = plot.getBoundingClientRect();
  if (!tree) tree = d3.quadtree(d3.range(points.count), (i) => points.px[i], (i) => points.py[i]);
  return tree.find(event.clientX - box.left, event.clientY - box.top, 22) ?? -1;
}

// Marks a point and says what it is; -1 marks none.
export function pointAt(point) {
  current = point;
  const ends = point < 0 ? null : intervalOf(point);
  layers.marks.selectAll(".current").remove();
  if (point >= 0) {
    if (ends) layers.marks.append("line").attr("class", "current").attr("x1", points.px[point]).attr("x2", points.px[point])
      .attr("y1", ends[0]).attr("y2", ends[1]);
    layers.marks.append("circle").attr("class", "current").attr("cx", points.px[point]).attr("cy", points.py[point]).attr("r", 9);
  }
  showHover(point);
}

function showHover(point) {
  const box = element("hover");
  box.hidden = point < 0;
  if (point < 0) return;
  box.replaceChildren(...describe(points.id[point]));
  const left = Math.min(points.px[point] + 14, scene.width - box.offsetWidth - 4);
  const above = points.py[point] - box.offsetHeight - 12;
  box.style.left = `${Math.max(2, left)}px`;
  box.style.top = `${above < 0 ? points.py[point] + 14 : above}px`;
}

// A ring around the points of the chosen row.
function markChosen() {
  layers.marks.selectAll(".chosen").remove();
  if (!state.chosen) return;
  for (let i = 0; i < points.count; i++) {
    if (!isChosen(points.id[i])) continue;
    layers.marks.append("circle").attr("class", "chosen").attr("cx", points.px[i]).attr("cy", points.py[i]).attr("r", 10);
  }
}

// The nearest point in the direction of an arrow key; the first for a start.
function neighbour(key) {
  if (current < 0) return points.count ? 0 : -1;
  const across = key === "ArrowLeft" || key === "ArrowRight", sign = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
  const along = across ? points.px : points.py, aside = across ? points.py : points.px;
  let best = current, distance = Infinity;
  for (let i = 0; i < points.count; i++) {
    const ahead = sign * (along[i] - along[current]);
    if (ahead < 0 || (ahead === 0 && sign * (i - current) <= 0)) continue;
    const far = ahead + 3 * Math.abs(aside[i] - aside[current]);
    if (far < distance) [best, distance] = [i, far];
  }
  return best;
}

plot.addEventListener("mousemove", (event) => { if (!event.buttons) pointAt(nearest(event)); });
plot.addEventListener("mouseleave", () => pointAt(-1));
plot.addEventListener("click", (event) => {
  const point = nearest(event);
  if (point >= 0) choosePoint(point);
});

// Its row is chosen; its text stays (a finger has no other way to point).
function choosePoint(point) {
  const id = points.id[point];
  plot.dispatchEvent(new CustomEvent("choose", { detail: id }));
  pointAt(points.id.indexOf(id));
}

plot.addEventListener("keydown", (event) => {
  if (PLAIN.includes(event.key)) pointAt(neighbour(event.key));
  else if (event.key === "Enter" && current >= 0) choosePoint(current);
  else return;
  event.preventDefault();
});
