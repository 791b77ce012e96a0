// The live stream of a page. A hidden page has none.
import { api } from "./requests.js";

const state = document.getElementById("live");
const trouble = document.getElementById("trouble");

function say(text) {
  if (state.textContent !== text) state.textContent = text;
}

function complain(error) {
  trouble.hidden = !error;
  const text = error ? `The server is away, the figures are old: ${error}` : "";
  if (trouble.textContent !== text) trouble.textContent = text;
}

export function follow(query, show) {
  let source = null;

  function open() {
    if (source !== null || document.hidden) return;
    source = new EventSource(`${api}events${query}`);
    source.addEventListener("sample", (event) => {
      const sample = JSON.parse(event.data);
      say("live");
      complain(sample.error);
      if (!sample.error) show(sample);
    });
    source.addEventListener("error", () => {
      say("not connected");
      if (source.readyState === EventSource.CLOSED) {
        close();
        setTimeout(open, 5000);
      }
    });
  }

  function close() {
    source?.close();
    source = null;
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      say("paused");
    } else {
      open();
    }
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
}
