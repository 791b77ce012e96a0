// The page of a message: which view of the body is shown.
const buttons = [...document.querySelectorAll("[data-view]")];
const title = document.querySelector("h1");
export const selection = {
  queue: title.dataset.queue,
  chosen: () => ({ ids: [title.dataset.id] }),
  told: () => "1 message",
};

for (const button of buttons) {
  button.addEventListener("click", () => {
    for (const other of buttons) {
      other.setAttribute("aria-pressed", String(other === button));
      document.getElementById(`view-${other.dataset.view}`).hidden = other !== button;
    }
  });
}
