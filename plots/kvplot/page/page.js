// Tables of class `sortable`: a click on a header sorts by its column, numbers by data-value; a second
// click turns the order. The select shows the rows of one layer.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const falling = head.getAttribute("aria-sort") === "ascending";
    const numeric = head.classList.contains("number");
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [value(a, column), value(b, column)];
      if (numeric && (x === "" || y === "")) return (x === "") - (y === "");  // empty ones last
      const order = numeric ? x - y : x.localeCompare(y);
      return falling ? -order : order;
    });
    body.append(...rows);
  }));
}
const layer = document.getElementById("layer");
function showLayer() {
  for (const row of document.querySelectorAll("#summary tbody tr")) {
    row.hidden = row.dataset.layer !== layer.value;
  }
}
if (layer) {
  layer.addEventListener("change", showLayer);
  showLayer();
}
