// On every page: the theme and the logout button.
import { post, root } from "./requests.js";

document.getElementById("theme").addEventListener("click", () => {
  const html = document.documentElement;
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = html.dataset.theme || (isDark ? "dark" : "light");
  html.dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem("rsmq-theme", html.dataset.theme);
  dispatchEvent(new Event("rsmq-theme"));
});

document.getElementById("logout")?.addEventListener("click", async () => {
  await post(`${root}logout`, {});
  location.assign(`${root}login`);
});
