// What speculation and the prefix cache bring: two cards that appear with the first draft and the first hit. Knows the
// sums of a TraceModel, nothing else.

const MOST_PLACES = 16; // bars

/** Rows of name and value. */
export function describeSpeculation({ verifications, drafts, stayed, tokens }) {
  return [
    ["verifications", count(verifications)],
    ["drafts", count(drafts)],
    ["stayed", `${count(stayed)} (${percent(stayed, drafts)})`],
    ["acceptance length", (tokens / Math.max(1, verifications)).toFixed(2)],
  ];
}

/** A bar for each place that a draft had: how high, and the same in words. */
export function placeBars({ verifications, places }) {
  return places.slice(0, MOST_PLACES).map((stayed, place) => ({
    name: `draft ${place + 1}`,
    share: stayed / Math.max(1, verifications),
    value: percent(stayed, verifications),
    words: ` stayed: ${count(stayed)} of ${count(verifications)} times`,
  }));
}

/** Rows of name and value. */
export function describePrefix({ looked, found }) {
  return [
    ["looked up", count(looked)],
    ["found", count(found)],
    ["hit rate", percent(found, looked)],
  ];
}

/** Fills the card, or hides it while nothing has been speculated. */
export function showSpeculation(card, sums) {
  card.hidden = sums.verifications === 0;
  if (card.hidden) return;
  card.querySelector(".numbers").replaceChildren(...describeSpeculation(sums).map(number));
  card.querySelector(".bars").replaceChildren(...placeBars(sums).map(bar));
}

/** Fills the card, or hides it while nothing has been found. */
export function showPrefix(card, sums) {
  card.hidden = sums.found === 0;
  if (card.hidden) return;
  card.querySelector(".numbers").replaceChildren(...describePrefix(sums).map(number));
}

/** A name and its value, for a list of numbers. */
export function number([name, value]) {
  const box = document.createElement("div");
  box.append(make("dt", name), make("dd", value));
  return box;
}

/** The coloured part is for the eyes alone: its text says the same. */
function bar({ name, share, value, words }) {
  const row = document.createElement("li");
  const track = make("span", "", "track");
  track.setAttribute("aria-hidden", "true");
  const part = make("span", "", "part");
  part.style.width = `${100 * share}%`;
  track.append(part);
  row.title = `${name}${words}`;
  row.append(make("span", name, "name"), track, make("span", value, "value"), make("span", words, "hidden"));
  return row;
}

function make(tag, text, className = "") {
  return Object.assign(document.createElement(tag), { textContent: text, className });
}

function count(number) {
  return number.toLocaleString("en");
}

function percent(part, whole) {
  return whole === 0 ? "–" : `${Math.round((100 * part) / whole)} %`;
}
