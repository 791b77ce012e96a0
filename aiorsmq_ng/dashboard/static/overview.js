// The overview: changed rows replace old figures; the order is that of the loaded page.
import { follow } from "./live.js";
import { root, segment } from "./requests.js";
import { age, count } from "./formatting.js";

const body = document.querySelector("#queues tbody");
const filter = document.getElementById("filter");
const rows = new Map([...body.rows].map((row) => [row.dataset.queue, row]));

function spark(depths) {
  const most = Math.max(1, ...depths);
  const first = 60 - depths.length;
  return depths.map((depth, at) => `${first + at},${(15 - (14 * depth) / most).toFixed(1)}`).join(" ");
}

function added(name) {
  const model = document.createElement("tr");
  model.dataset.queue = name;
  const head = document.createElement("th");
  head.scope = "row";
  const link = document.createElement("a");
  link.href = `${root}q/${segment(name)}`;
  link.textContent = name;
  head.append(link);
  model.append(head);
  for (const field of ["trouble", "ready", "leased", "delayed", "dead", "oldest_age", "in_s", "out_s", "consumers"]) {
    const cell = document.createElement("td");
    cell.dataset.field = field;
    cell.className = field === "trouble" ? "trouble" : "n";
    model.append(cell);
  }
  const cell = document.createElement("td");
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("class", "spark");
  picture.setAttribute("viewBox", "0 0 60 16");
  picture.setAttribute("aria-hidden", "true");
  picture.append(document.createElementNS("http://www.w3.org/2000/svg", "polyline"));
  cell.append(picture);
  model.append(cell);
  body.append(model);
  rows.set(name, model);
  document.getElementById("empty")?.remove();
  return model;
}

function put(cell, text) {
  if (cell.textContent !== text) cell.textContent = text;
}

function show(sample) {
  for (const figures of sample.rows) {
    const row = rows.get(figures.name) ?? added(figures.name);
    for (const cell of row.querySelectorAll("[data-field]")) {
      const field = cell.dataset.field;
      const value = figures[field];
      put(cell, field === "trouble" ? value : field === "oldest_age" ? age(value) : count(value));
    }
    row.querySelector("polyline").setAttribute("points", spark(figures.depths));
  }
  for (const name of sample.gone) {
    rows.get(name)?.remove();
    rows.delete(name);
  }
  for (const cell of document.querySelectorAll("[data-total]")) {
    const value = sample.totals[cell.dataset.total];
    put(cell, cell.dataset.total === "oldest_age" ? age(value) : count(value));
  }
  choose();
}

function choose() {
  const wanted = filter.value.toLowerCase();
  let shown = 0;
  for (const [name, row] of rows) {
    row.hidden = !name.toLowerCase().includes(wanted);
    shown += row.hidden ? 0 : 1;
  }
  put(document.getElementById("shown"), wanted ? `${count(shown)} of ${count(rows.size)}` : "");
}

filter.addEventListener("input", choose);
choose();
follow("", show);
