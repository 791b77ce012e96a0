// Runs before the page is drawn, so that a chosen theme does not flicker.
"use strict";
{
  const chosen = localStorage.getItem("rsmq-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
}
