// Figures in words, as the server writes them.
export function count(number) {
  if (number === null || number === undefined) return "–";
  const [whole, part] = String(number).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, "\u2009") + (part ? `.${part}` : "");
}

export function age(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)}\u00a0s`;
  let left = Math.floor(seconds);
  const parts = [];
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    if (left >= size) {
      parts.push(`${Math.floor(left / size)}\u00a0${unit}`);
      left %= size;
    }
  }
  return parts.slice(0, 2).join(" ");
}

export function when(ms) {
  if (!ms) return "–";
  const moment = new Date(ms);
  if (Number.isNaN(moment.getTime())) return "beyond all years";
  return `${moment.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

export function size(bytes) {
  let value = bytes;
  let unit = "B";
  for (const larger of ["KiB", "MiB", "GiB"]) {
    if (value < 1024) break;
    value /= 1024;
    unit = larger;
  }
  return `${unit === "B" ? value : value.toFixed(1)}\u00a0${unit}`;
}

export function messages(number) {
  return `${count(number)} message${number === 1 ? "" : "s"}`;
}
