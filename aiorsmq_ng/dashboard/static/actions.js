// Dialogs of actions: they ask, name what is changed, show progress, and can be stopped.
import { api, lines, post, segment } from "./requests.js";
import { count, messages } from "./formatting.js";

const page = document.body.dataset.page;
const { selection } = page === "messages" ? await import("./messages.js") : page === "message" ? await import("./message.js") : {};
const queue = document.querySelector("h1").dataset.queue;
const address = `${api}queues/${segment(queue)}`;
let running = null;

function number(value) {
  return value === "" || value === null ? null : Number(value);
}

// What each action sends, given the fields of its dialog.
const REQUESTS = {
  redrive: (given, dialog) => ({
    match: dialog.dataset.reason === undefined ? { where: given.get("where") ?? "" } : { reason_kind: dialog.dataset.reason },
    count: number(given.get("count")),
    rate: number(given.get("rate")),
    dry_run: given.get("dry_run") === "on",
  }),
  purge: (given) => ({ confirm: given.get("confirm"), leased: given.get("leased") === "on" }),
  release: () => selection.chosen(),
  extend: (given) => ({ ...selection.chosen(), seconds: Number(given.get("seconds")) }),
  move: (given) => ({ ...selection.chosen(), target: given.get("target"), rate: number(given.get("rate")) }),
  delete: () => selection.chosen(),
};
const DONE = { redrive: "moved", purge: "removed", release: "released", extend: "extended", move: "moved", delete: "deleted" };

async function long(action, dialog, given, result) {
  const request = REQUESTS[action](given, dialog);
  running = new AbortController();
  let last = null;
  for await (const step of lines(`${address}/${action}`, request, running.signal)) {
    last = step;
    const many = request.dry_run ? `${messages(step.matched)} would be ${DONE[action]}` : `${messages(step.done)} ${DONE[action]}`;
    result.textContent = `${many}, ${count(step.looked_at)} looked at${step.finished ? "." : "…"}`;
  }
  return last !== null && !request.dry_run;
}

async function short(action, given, result) {
  const isSend = action === "send";
  const request = isSend
    ? { body: given.get("body"), delay: number(given.get("delay")), copies: Number(given.get("copies")) }
    : { vt: number(given.get("vt")), delay: number(given.get("delay")), maxsize: number(given.get("maxsize")) };
  const reply = await post(isSend ? `${address}/messages` : address, request, { method: isSend ? "POST" : "PATCH" });
  const answer = await reply.json();
  if (!reply.ok) throw new Error(answer.error);
  result.textContent = isSend ? `${messages(answer.ids.length)} sent.` : "Changed.";
  return !isSend;
}

async function run(dialog) {
  const form = dialog.querySelector("form");
  const [go, stop, result] = [".go", ".stop", ".result"].map((kind) => form.querySelector(kind));
  const { action } = form.dataset;
  go.disabled = true;
  stop.hidden = !(action in REQUESTS);
  result.textContent = "working…";
  try {
    const given = new FormData(form);
    const changed = action in REQUESTS ? await long(action, dialog, given, result) : await short(action, given, result);
    if (changed) dialog.dataset.changed = "1";
  } catch (error) {
    if (error.name === "AbortError") {
      result.textContent += " Stopped.";
      dialog.dataset.changed = "1";
    } else {
      result.textContent = `This did not work: ${error.message}`;
    }
  } finally {
    running = null;
    stop.hidden = true;
    go.disabled = false;
  }
}

// "All that match" is counted before it is asked about.
async function counted(dialog) {
  const place = dialog.querySelector(".how-many");
  if (place === null) return;
  place.textContent = selection.told();
  const chosen = selection.chosen();
  if (!chosen.match) return;
  const go = dialog.querySelector(".go");
  go.disabled = true;
  running = new AbortController();
  try {
    for await (const step of lines(`${address}/delete`, { ...chosen, dry_run: true }, running.signal)) {
      place.textContent = `${messages(step.matched)}${step.finished ? "" : " or more"}`;
    }
    go.disabled = false;
  } catch (error) {
    if (error.name !== "AbortError") place.textContent = `messages that cannot be counted (${error.message})`;
  } finally {
    running = null;
  }
}

for (const button of document.querySelectorAll("[data-dialog]")) {
  button.addEventListener("click", () => {
    const dialog = document.getElementById(`dialog-${button.dataset.dialog}`);
    if (button.dataset.reason !== undefined) {
      dialog.dataset.reason = button.dataset.reason;
      dialog.querySelector(".reason").textContent = button.dataset.shown || "that is not known";
    }
    dialog.querySelector(".result").textContent = "";
    dialog.showModal();
    counted(dialog);
  });
}

for (const dialog of document.querySelectorAll("dialog")) {
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    run(dialog);
  });
  dialog.querySelector(".stop").addEventListener("click", () => running?.abort());
  dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    running?.abort();
    if (dialog.dataset.changed) location.reload();
  });
}
