// Marks of methods: kvplot's colour and marker of each algorithm; labels of one algorithm differ in the
// line and in a hole.

import { DATA } from "./data.js";

const TAU = 2 * Math.PI;

function polygon(count, turn, radius, inner = null) {
  const corners = [];
  const steps = inner === null ? count : 2 * count;
  for (let i = 0; i < steps; i++) {
    const r = inner !== null && i % 2 ? inner : radius, angle = turn + TAU * i / steps;
    corners.push(`${(r * Math.sin(angle)).toFixed(2)},${(-r * Math.cos(angle)).toFixed(2)}`);
  }
  return `M${corners.join("L")}Z`;
}

function plus(r, turn) {
  const w = r * 0.38, corners = [[-w, -r], [w, -r], [w, -w], [r, -w], [r, w], [w, w], [w, r], [-w, r], [-w, w], [-r, w], [-r, -w], [-w, -w]];
  const [c, s] = [Math.cos(turn), Math.sin(turn)];
  return `M${corners.map(([x, y]) => `${(x * c - y * s).toFixed(2)},${(x * s + y * c).toFixed(2)}`).join("L")}Z`;
}

// Matplotlib's letters as paths around 0.
const MARKERS = {
  o: (r) => `M${-r},0A${r},${r} 0 1 0 ${r},0A${r},${r} 0 1 0 ${-r},0Z`,
  s: (r) => polygon(4, TAU / 8, 1.25 * r),
  D: (r) => polygon(4, 0, 1.25 * r),
  d: (r) => `M0,${-1.35 * r}L${0.8 * r},0L0,${1.35 * r}L${-0.8 * r},0Z`,
  "^": (r) => polygon(3, 0, 1.25 * r),
  v: (r) => polygon(3, TAU / 2, 1.25 * r),
  "<": (r) => polygon(3, -TAU / 4, 1.25 * r),
  ">": (r) => polygon(3, TAU / 4, 1.25 * r),
  p: (r) => polygon(5, 0, 1.15 * r),
  h: (r) => polygon(6, 0, 1.15 * r),
  8: (r) => polygon(8, TAU / 16, 1.1 * r),
  P: (r) => plus(1.1 * r, 0),
  X: (r) => plus(1.15 * r, TAU / 8),
  "*": (r) => polygon(5, 0, 1.5 * r, 0.62 * r),
};
export const DASHES = [[], [6, 3], [1.5, 3], [6, 3, 1.5, 3], [8, 2, 1.5, 2, 1.5, 2]];

// By label: colour, marker, and its place among the labels of its algorithm.
export const LOOKS = (() => {
  const looks = {}, counts = {};
  for (const { algorithm, label } of DATA.settings) {
    if (looks[label]) continue;
    counts[algorithm] = counts[algorithm] ?? -1;
    looks[label] = { ...DATA.looks[algorithm], variant: ++counts[algorithm] };
  }
  return looks;
})();

export const dark = matchMedia("(prefers-color-scheme: dark)");
let printing = false;  // paper is light
const ON_PAPER = { "--ground": "#fff", "--halo": "#fff", "--quiet": "#444" };
const variable = (name) => printing ? ON_PAPER[name]
  : getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Lines and outlines need contrast to a dark ground: dark colours are lightened, their hue stays.
export function lineColour(colour) {
  if (!dark.matches || printing) return colour;
  const rgb = d3.rgb(colour), channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (c) => 0.2126 * channel(c.r) + 0.7152 * channel(c.g) + 0.0722 * channel(c.b);
  let share = 0, mixed = rgb;
  while (light(mixed) < 0.18 && share < 0.9) mixed = d3.rgb(d3.interpolateRgb(rgb, "#ffffff")(share += 0.1));
  return mixed.formatHex ? mixed.formatHex() : String(mixed);
}

// How a mark is painted: {path, fill, edge, width, hole}.
function markOf(label, radius) {
  const { colour, marker, variant } = LOOKS[label];
  return {
    path: (MARKERS[marker] ?? MARKERS.o)(radius),
    fill: colour,
    edge: variable("--halo"),
    width: 0.8,
    hole: variant > 0 ? radius * 0.42 : 0,
    holeFill: variable("--ground"),
  };
}

export function markIcon(label) {
  const mark = markOf(label, 5.5), icon = d3.create("svg").attr("width", 18).attr("height", 18)
    .attr("viewBox", "-9 -9 18 18").attr("aria-hidden", "true");
  icon.append("path").attr("d", mark.path).attr("fill", mark.fill).attr("stroke", mark.edge).attr("stroke-width", mark.width);
  if (mark.hole) icon.append("circle").attr("r", mark.hole).attr("fill", mark.holeFill);
  return icon.node();
}

// Marks painted once, then stamped: 100,000 points are as many drawImage calls.
export const stamps = new Map();
export function stampOf(label, radius, ratio) {
  const key = JSON.stringify([label, radius, ratio]);
  if (!stamps.has(key)) {
    const size = Math.ceil(2 * (1.6 * radius + 2)), canvas = document.createElement("canvas");
    canvas.width = canvas.height = size * ratio;
    const pen = canvas.getContext("2d"), mark = markOf(label, radius);
    pen.scale(ratio, ratio);
    pen.translate(size / 2, size / 2);
    const path = new Path2D(mark.path);
    pen.fillStyle = mark.fill;
    pen.fill(path);
    pen.strokeStyle = mark.edge;
    pen.lineWidth = mark.width;
    pen.stroke(path);
    if (mark.hole) {
      pen.beginPath();
      pen.arc(0, 0, mark.hole, 0, TAU);
      pen.fillStyle = mark.holeFill;
      pen.fill();
    }
    stamps.set(key, { canvas, size });
  }
  return stamps.get(key);
}

// Marks are painted anew: on paper, or on the ground of the screen.
export function paintOnPaper(begins) {
  printing = begins;
  stamps.clear();
}
