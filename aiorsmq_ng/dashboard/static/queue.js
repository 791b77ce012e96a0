// The page of a queue: tiles, consumers and charts.
import { follow } from "./live.js";
import { age, count } from "./formatting.js";

const name = document.querySelector("h1").dataset.queue;
const table = document.querySelector("#consumers tbody");
const POINTS = 300;
const points = { at: [], ready: [], leased: [], delayed: [], in_s: [], out_s: [], oldest_age: [] };
const SERIES = {
  depth: [["ready", "--one"], ["leased", "--two"], ["delayed", "--three"]],
  rates: [["in_s", "--one"], ["out_s", "--two"]],
  age: [["oldest_age", "--one"]],
};
let charts = [];

// A canvas needs the colour that is shown: a variable holds the pair of light and dark.
function color(variable) {
  const probe = document.createElement("span");
  probe.style.color = `var(${variable})`;
  document.body.append(probe);
  const shown = getComputedStyle(probe).color;
  probe.remove();
  return shown;
}

function clock(_, ticks) {
  return ticks.map((tick) => new Date(tick * 1000).toTimeString().slice(0, 8));
}

function draw() {
  for (const chart of charts) chart.plot.destroy();
  charts = [...document.querySelectorAll("[data-chart]")].map((place) => {
    const series = SERIES[place.dataset.chart];
    const axis = { stroke: color("--text"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") } };
    const labels = { in_s: "in", out_s: "out", oldest_age: "oldest" };
    const plot = new uPlot(
      {
        width: place.clientWidth || 300,
        height: 180,
        cursor: { show: false },
        legend: { live: false, isolate: false },
        scales: { y: { range: (_, low, high) => [0, Math.max(1, high)] } },
        axes: [{ ...axis, values: clock, space: 80 }, axis],
        series: [{}, ...series.map(([field, variable]) => ({ label: labels[field] ?? field, stroke: color(variable), width: 2, points: { show: false } }))],
      },
      data(series),
      place,
    );
    // The legend names the lines; as a table without headers it would confuse screen readers.
    place.querySelector(".u-legend")?.setAttribute("role", "presentation");
    return { plot, series, place };
  });
}

function data(series) {
  return [points.at, ...series.map(([field]) => points[field])];
}

function show(sample) {
  if (sample.row === null) {
    document.getElementById("state").textContent = "deleted";
    return;
  }
  for (const cell of document.querySelectorAll("[data-total]")) {
    const value = sample.row[cell.dataset.total];
    const text = cell.dataset.total === "oldest_age" ? age(value) : count(value);
    if (cell.textContent !== text) cell.textContent = text;
  }
  document.getElementById("state").textContent = sample.row.trouble;
  for (const field of Object.keys(points)) {
    if (sample.first) points[field] = [];
    // Without a ready message there is no age: the line is at zero.
    points[field].push(...sample.points[field].map((value) => (field === "oldest_age" ? value ?? 0 : value)));
    points[field].splice(0, points[field].length - POINTS);
  }
  for (const chart of charts) chart.plot.setData(data(chart.series));
  table.replaceChildren(...sample.consumers.map(row));
  document.getElementById("lonely").hidden = sample.consumers.length > 0;
}

function row(consumer) {
  const line = document.createElement("tr");
  const head = document.createElement("th");
  head.scope = "row";
  head.textContent = consumer.name;
  line.append(head);
  for (const text of [count(consumer.consumers), count(consumer.holding.length), age(consumer.idle)]) {
    const cell = document.createElement("td");
    cell.className = "n";
    cell.textContent = text;
    line.append(cell);
  }
  return line;
}

draw();
addEventListener("rsmq-theme", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("resize", () => {
  for (const { plot, place } of charts) plot.setSize({ width: place.clientWidth || 300, height: 180 });
});
follow(`?queue=${encodeURIComponent(name)}`, show);
