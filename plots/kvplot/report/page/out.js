// The table's rows, all pages of them, as CSV and LaTeX (booktabs).

import { DATA } from "./data.js";
import { sameUnits } from "./means.js";
import { element, make, state } from "./state.js";
import { listed } from "./table.js";

// The page holds single precision, seven digits; results.json has all of them.
const digits = (value) => value === value ? String(Number(value.toPrecision(7))) : "";

function asCsv({ ids, columns }) {
  const quoted = (text) => /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const name = ({ key, name: words }) =>
    ({ metric: state.metric, against: state.against, a: `A ${state.metric}`, b: `B ${state.metric}`,
       std: `${state.metric} std_over_seeds`, low: `${state.metric} ci95 low`, high: `${state.metric} ci95 high` })[key]
    ?? (DATA.numbers.includes(key) ? key : words);
  const lines = [columns.map((column) => quoted(name(column))).join(",")];
  for (const id of ids) {
    lines.push(columns.map((column) => column.number ? digits(column.value(id)) : quoted(column.text(id))).join(","));
  }
  return `${lines.join("\n")}\n`;
}

const LATEX = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$",
                "<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}" };
const latexText = (text) => text.replace(/[\\~^±<>|]|[&%$#_{}]/g, (mark) => LATEX[mark] ?? `\\${mark}`);

function latexNumber(text) {
  const parts = /^(-?[\d.]+)e([+-]?\d+)$/.exec(text);
  return parts ? `$${parts[1]} \\times 10^{${Number(parts[2])}}$` : text.startsWith("-") ? `$${text}$` : text;
}

function asLatex({ ids, columns }) {
  const field = (column, id) => column.number ? latexNumber(column.format(column.value(id))) : latexText(column.text(id));
  const row = (fields) => `${fields.join(" & ")} \\\\`;
  return [
    `% ${latexText(document.title)}: needs \\usepackage{booktabs}`,
    ...(state.view !== "cells" && sameUnits(state.metric, state).said ? [`% ${sameUnits(state.metric, state).said}`] : []),
    `\\begin{tabular}{${columns.map((column) => column.number ? "r" : "l").join("")}}`,
    "\\toprule", row(columns.map(({ name }) => latexText(name))), "\\midrule",
    ...ids.map((id) => row(columns.map((column) => field(column, id)))), "\\bottomrule", "\\end{tabular}", "",
  ].join("\n");
}

function download(name, text, type) {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// A file's name from the results' name: what no file system minds.
const fileName = (ending) => `${DATA.results.map(({ name }) => name).join("-").replace(/[^\w.-]+/g, "_") || "results"}.${ending}`;

element("csv").addEventListener("click", () => download(fileName("csv"), asCsv(listed), "text/csv;charset=utf-8"));
element("latex").addEventListener("click", () => download(fileName("tex"), asLatex(listed), "application/x-tex"));

async function copied(button, text) {
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  } catch {
    button.textContent = "cannot copy";  // a page opened as a file may not, in some browsers
  }
  setTimeout(() => { button.textContent = words; }, 1500);
}
element("copy").addEventListener("click", () => copied(element("copy"), location.href));
