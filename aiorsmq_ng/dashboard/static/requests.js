// Requests to the JSON API, relative to the dashboard's root.
export const root = document.body.dataset.root;
export const api = `${root}api/v1/`;

// A name as one segment of a path: servers decode once, so it is encoded twice.
export function segment(name) {
  const plain = /^\.+$/.test(name) ? name.replaceAll(".", "%2E") : quoted(name);
  return quoted(plain);
}

function quoted(text) {
  return encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
}

export async function post(address, value, { method = "POST", accept = "application/json", signal } = {}) {
  return fetch(address, {
    method,
    signal,
    headers: { "content-type": "application/json", "x-rsmq-dashboard": "1", accept },
    body: JSON.stringify(value),
  });
}

// Yields the lines of a long action; throws its error.
export async function* lines(address, value, signal) {
  const reply = await post(address, value, { accept: "application/x-ndjson", signal });
  if (!reply.ok) throw new Error((await reply.json()).error);
  let rest = "";
  for await (const chunk of chunks(reply.body.pipeThrough(new TextDecoderStream()).getReader())) {
    const parts = (rest + chunk).split("\n");
    rest = parts.pop();
    for (const part of parts) {
      const step = JSON.parse(part);
      if (step.error) throw new Error(step.error);
      yield step;
    }
  }
}

async function* chunks(reader) {
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}
