// Pages of messages: search results as they are found, and the selection.
import { segment } from "./requests.js";
import { count, messages, size, when } from "./formatting.js";

const table = document.getElementById("messages");
const body = table.tBodies[0];
const form = document.getElementById("search");
const all = document.getElementById("all");
export const selection = { queue: document.querySelector("h1").dataset.queue, chosen, told };
let found = null;

function chosen() {
  if (all?.checked) {
    const given = new FormData(form);
    return { match: { text: given.get("text"), where: given.get("where"), state: given.get("state") } };
  }
  return { ids: boxes().map((box) => box.value) };
}

function told() {
  return all?.checked ? "all messages that match" : messages(boxes().length);
}

function boxes() {
  return [...body.querySelectorAll("input[name=id]:checked")];
}

function update() {
  const status = document.getElementById("selected");
  if (status === null) return;
  const number = boxes().length;
  status.textContent = all?.checked ? "all that match" : `${count(number)} selected`;
  for (const button of document.querySelectorAll("#selection button")) button.disabled = !all?.checked && !number;
}

function hit(one) {
  const row = document.createElement("tr");
  if (table.dataset.select === "1") {
    const box = document.createElement("input");
    box.type = "checkbox";
    box.name = "id";
    box.value = one.id;
    box.setAttribute("aria-label", `Select ${one.id}`);
    put(row, box);
  }
  const head = document.createElement("th");
  head.scope = "row";
  const link = document.createElement("a");
  link.className = "id";
  link.href = `${table.dataset.here}/m/${segment(one.id)}`;
  link.textContent = one.id;
  head.append(link);
  row.append(head);
  for (const text of [one.state, when(one.sent), when(one.visible_at)]) put(row, text);
  for (const text of [count(one.rc), size(one.size)]) put(row, text).className = "n";
  put(row, isolated(one.preview)).className = "body";
  if (table.dataset.dead === "1") put(row, isolated(one.reason ?? "")).className = "body";
  body.append(row);
}

function put(row, content) {
  const cell = document.createElement("td");
  cell.append(content);
  row.append(cell);
  return cell;
}

function isolated(text) {
  const part = document.createElement("bdi");
  part.textContent = text;
  return part;
}

function search(address) {
  const source = new EventSource(`${address}?${new URLSearchParams(new FormData(form))}`);
  const status = document.getElementById("found");
  const bar = document.getElementById("progress");
  const stop = document.getElementById("stop");

  function progress(event) {
    found = JSON.parse(event.data);
    bar.max = Math.max(1, found.total);
    bar.value = found.looked_at;
    status.textContent = `${count(found.found)} found, ${count(found.looked_at)} of ${count(found.total)} looked at`;
  }

  function end(word) {
    source.close();
    stop.hidden = true;
    status.textContent += `, ${word}`;
  }

  source.addEventListener("hit", (event) => hit(JSON.parse(event.data)));
  source.addEventListener("progress", progress);
  source.addEventListener("done", (event) => {
    progress(event);
    bar.value = bar.max;
    end("done");
  });
  source.addEventListener("failed", (event) => end(JSON.parse(event.data).error));
  source.addEventListener("error", () => end("the search was interrupted"));
  stop.addEventListener("click", () => end("stopped"));
  addEventListener("pagehide", () => source.close());
}

table.addEventListener("change", update);
all?.addEventListener("change", update);
if (form.dataset.search) search(form.dataset.search);
update();
