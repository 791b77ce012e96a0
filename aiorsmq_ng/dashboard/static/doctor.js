// The doctor's examination of all queues, with progress.
import { api } from "./requests.js";
import { count } from "./formatting.js";

const [button, stop, status] = ["examine", "stop", "found"].map((id) => document.getElementById(id));
const body = document.querySelector("#findings tbody");

function row(finding) {
  const line = document.createElement("tr");
  const texts = [finding.severity, finding.kind, finding.queue ?? "", count(finding.count), finding.detail];
  const kinds = [`severity-${finding.severity}`, "", "", "n", "body"];
  texts.forEach((text, at) => {
    const cell = document.createElement("td");
    cell.className = kinds[at];
    cell.textContent = text;
    line.append(cell);
  });
  return line;
}

button.addEventListener("click", () => {
  const source = new EventSource(`${api}doctor`);
  button.disabled = true;
  stop.hidden = false;

  function end(text) {
    source.close();
    button.disabled = false;
    stop.hidden = true;
    status.textContent = text;
  }

  source.addEventListener("progress", (event) => {
    const { what, done, total } = JSON.parse(event.data);
    status.textContent = `${what}: ${count(done)}${total ? ` of ${count(total)}` : ""} looked at`;
  });
  source.addEventListener("report", (event) => {
    const report = JSON.parse(event.data);
    body.replaceChildren(...report.findings.map(row));
    end(`${count(report.queues)} queues examined: ${report.healthy ? "healthy" : "see below"}.`);
  });
  source.addEventListener("failed", (event) => end(JSON.parse(event.data).error));
  source.addEventListener("error", () => end("The examination was interrupted."));
  stop.onclick = () => end("Stopped.");
});
