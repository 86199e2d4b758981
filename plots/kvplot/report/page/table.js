// The table below the scatter: sortable, a page of rows at a time.

import { sameUnits } from "./means.js";
import { chosenRows, sortedRows, VIEWS } from "./rows.js";
import { choose, element, isChosen, make, state } from "./state.js";
import { markIcon } from "./marks.js";
import { pointAt, points } from "./scatter.js";

export const PAGE = 100, PRINTED = 1000;
export const table = element("table");
// Rows that pass, sorted; columns that are shown.
export let listed = { ids: [], columns: [], unknown: [] };

// Columns of a view: the user's choice over the view's.
function columnsOf(view) {
  const all = view.columns(state);
  const chosen = state.columns[state.view] ?? new Set([...view.shown, ...(sameUnits(state.metric, state).isLacking ? ["has"] : [])]);
  return { all, shown: all.filter(({ key }) => chosen.has(key)) };
}

export function list() {
  const view = VIEWS[state.view], { all, shown } = columnsOf(view), { ids, unknown } = chosenRows(state);
  const column = all.find(({ key }) => key === state.sort);
  listed = { ids: sortedRows(ids, column, state.falling), columns: shown, all, unknown };
  return listed;
}

export function drawTable(rows = PAGE) {
  const { ids, columns } = listed, pages = Math.max(1, Math.ceil(ids.length / rows));
  state.page = Math.min(state.page, pages - 1);
  const from = state.page * rows, some = ids.slice(from, from + rows);
  table.tHead.replaceChildren(make("tr", {}, ...columns.map(headOf)));
  table.tBodies[0].replaceChildren(...some.map((id, place) => rowOf(id, columns, place)));
  const turn = (name, page) => {
    const button = make("button", { type: "button", disabled: page < 0 || page >= pages }, name);
    button.addEventListener("click", () => choose({ page }));
    return button;
  };
  element("pages").replaceChildren(...(pages > 1 ? [turn("previous", state.page - 1), " ", turn("next", state.page + 1), " "] : []),
    ids.length ? `rows ${(from + 1).toLocaleString("en")} to ${(from + some.length).toLocaleString("en")} of ${ids.length.toLocaleString("en")}` : "no rows");
}

function headOf(column) {
  const button = make("button", { type: "button", "data-key": column.key }, column.name);
  button.addEventListener("click", () => {
    choose({ sort: column.key, falling: state.sort === column.key && !state.falling, page: 0 });
    table.querySelector(`th button[data-key="${CSS.escape(column.key)}"]`)?.focus();
  });
  const order = state.sort === column.key ? (state.falling ? "descending" : "ascending") : null;
  return make("th", { scope: "col", class: column.number && "number", title: column.title || null, "aria-sort": order }, button);
}

function fieldOf(column, id) {
  if (column.number) return make("td", { class: "number" }, column.format(column.value(id)));
  const text = column.text(id);
  if (column.key === "method") return make("td", {}, markIcon(text), ` ${text}`);
  return make("td", { class: column.key === "status" ? text : null }, text);
}

function rowOf(id, columns, place) {
  const row = make("tr", { tabindex: place ? -1 : 0, "data-id": id, "aria-selected": String(isChosen(id)) },
                   ...columns.map((column) => fieldOf(column, id)));
  return row;
}

export function chooseRow(id) {
  const view = VIEWS[state.view], same = isChosen(id);
  const place = listed.ids.indexOf(id);
  choose({ chosen: same ? null : { view: state.view, id, setting: view.settingOf(id) },
           page: place < 0 ? state.page : Math.floor(place / PAGE) });
  if (!same) showRow(table.querySelector("tr[aria-selected=true]"));
}

// Scrolls the table alone: the page stays where it is.
function showRow(row) {
  const box = table.parentNode;
  if (!row) return;
  const top = row.offsetTop - table.tHead.offsetHeight, bottom = row.offsetTop + row.offsetHeight;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
}

const rowAt = (event) => event.target.closest("tbody tr");
const pointOfRow = (row) => points.id.indexOf(Number(row.dataset.id));

table.addEventListener("click", (event) => {
  const row = rowAt(event);
  if (row) chooseRow(Number(row.dataset.id));
});
table.addEventListener("mouseover", (event) => { const row = rowAt(event); if (row) pointAt(pointOfRow(row)); });
table.addEventListener("mouseleave", () => pointAt(-1));
table.addEventListener("focusin", (event) => { const row = rowAt(event); if (row) pointAt(pointOfRow(row)); });
table.addEventListener("keydown", (event) => {
  const row = rowAt(event);
  if (!row) return;
  const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling,
                 Home: row.parentNode.firstElementChild, End: row.parentNode.lastElementChild }[event.key];
  if (event.key === "Enter" || event.key === " ") {
    const id = row.dataset.id;
    chooseRow(Number(id));
    table.querySelector(`tr[data-id="${id}"]`)?.focus();
  } else if (next) {
    row.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  } else return;
  event.preventDefault();
});

export function drawColumnChoice() {
  const { all, shown } = columnsOf(VIEWS[state.view]), keys = new Set(shown.map(({ key }) => key));
  element("columns").querySelector("div").replaceChildren(...all.map(({ key, name }) => {
    const box = make("input", { type: "checkbox", "data-key": key });
    box.checked = keys.has(key);
    box.addEventListener("change", () => {
      const chosen = new Set(keys);
      if (box.checked) chosen.add(key); else chosen.delete(key);
      choose({ columns: { ...state.columns, [state.view]: chosen } });
      element("columns").querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
    });
    return make("label", {}, box, ` ${name}`);
  }));
}
