// Login. A token may come in the fragment of the address, which browsers do not send to servers.
import { post, root } from "./requests.js";

const form = document.getElementById("login");

async function enter(token) {
  const reply = await post(`${root}login`, { token });
  if (reply.ok) location.replace(root);
  else document.getElementById("failed").textContent = (await reply.json()).error;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  enter(new FormData(form).get("token"));
});

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  history.replaceState(null, "", location.pathname);
  enter(given);
}
