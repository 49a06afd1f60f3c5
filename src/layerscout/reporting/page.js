// Draws the charts of a page and sorts its tables. The interpreter (ast) needs no eval, so the page
// can forbid it.
// What a tooltip shows stays text, and what has no value is a dash.
const escapes = {"&": "&amp;", "<": "&lt;"};
const sanitize = value => {
  const text = String(value);
  return text === "null" ? "–" : text.replace(/[&<]/g, sign => escapes[sign]);
};
for (const figure of document.querySelectorAll("[data-chart]")) {
  const chart = JSON.parse(document.getElementById(figure.dataset.chart).textContent);
  const actions = {export: true, source: false, compiled: false, editor: false};
  const options = {mode: "vega-lite", renderer: "svg", ast: true, actions, tooltip: {sanitize}};
  vegaEmbed(figure, chart, options);
}
const missing = text => text === "" || text === "–";
const read = text => {
  const plain = text.replace(/,/g, "").replace("−", "-");
  const start = plain.match(/^[+-]?\d[\d.]*(e[+-]?\d+)?(?!\w)/);
  return start ? parseFloat(start[0]) : null;
};
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => heading.firstElementChild.addEventListener("click", () => {
    const up = heading.getAttribute("aria-sort") !== "ascending";
    headings.forEach(other => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...table.tBodies[0].rows].map(row => {
      const text = row.cells[column].textContent.replace("◆", "").trim();
      return [row, text, read(text)];
    });
    // A name may start with a number, so numbers are compared only where nothing else stands.
    const numeric = rows.every(([, text, value]) => missing(text) || value !== null);
    rows.sort(([, a, x], [, b, y]) => {
      if (missing(a) || missing(b)) return missing(a) - missing(b);
      return (up ? 1 : -1) * (numeric ? x - y : a.localeCompare(b, undefined, {numeric: true}));
    });
    table.tBodies[0].append(...rows.map(([row]) => row));
  }));
}
