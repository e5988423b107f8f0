// The wire log: each request between Slack, the bot and the video service, newest first.

import { formatDate, moment } from "./dates.js";
import { cardOf, requestsOf } from "./api.js";
import { fill, make, newId, settled } from "./dom.js";
import { icon } from "./icons.js";

const KEPT = 500;
const FIND_MILLISECONDS = 150;
const COPIED_MILLISECONDS = 1500;
const WAYS = [
  ["", "All requests"],
  ["slack bot", "Slack → bot"],
  ["bot slack", "bot → Slack"],
  ["bot service", "bot → video service"],
  ["service bot", "video service → bot"],
];
const NAMES = { slack: "Slack", bot: "bot", service: "video service" };

function pretty(body) {
  return typeof body === "string" ? body : JSON.stringify(body, null, 2);
}

function part(words, body) {
  if (body === null || body === undefined || body === "") return null;
  const text = pretty(body);
  const copy = make(
    "button.icon-button",
    { type: "button", "aria-label": `Copy the ${words.toLowerCase()}`, title: "Copy" },
    icon("copy"),
  );
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    fill(copy, icon("check"));
    setTimeout(() => fill(copy, icon("copy")), COPIED_MILLISECONDS);
  });
  return make(
    "div.wire-part",
    {},
    make("div.wire-part-head", {}, make("h3", {}, words), copy),
    make("pre", { tabindex: "0" }, text),
  );
}

/** One request; what was in it is written only once somebody opens it. */
function wireEntry(first, onCard) {
  let entry = first;
  const status = make("span.wire-status");
  const took = make("span.wire-took");
  const inside = make("div.wire-inside");
  const back = make("button.button.is-small", { type: "button", hidden: true }, "Show the card");
  const line = make(
    "summary",
    {},
    make("span.wire-time", {}, formatDate(moment(entry.at), "{time_secs}")),
    make(
      "span.wire-way",
      { data: { way: `${entry.from}-${entry.to}` } },
      `${NAMES[entry.from]} → ${NAMES[entry.to]}`,
    ),
    make("span.wire-about", {}, entry.about || entry.path),
    status,
    took,
  );
  const node = make("details.wire-entry", {}, line, inside);

  function write() {
    if (!node.open) return;
    const head = make("p.wire-path", {}, make("code", {}, `${entry.method} ${entry.path}`));
    fill(inside, head, back, part("Request", entry.request), part("Response", entry.response));
  }

  function update(now) {
    entry = now;
    status.textContent = entry.failed ?? (entry.status === null ? "…" : String(entry.status));
    const isBad = entry.failed || entry.status >= 400 || entry.response?.ok === false;
    status.classList.toggle("is-bad", Boolean(isBad));
    status.classList.toggle("is-sentence", Boolean(entry.failed));
    took.textContent = entry.duration_ms === null ? "" : `${Math.round(entry.duration_ms)} ms`;
    write();
  }

  async function findCard() {
    if (!node.open) return;
    const card = await cardOf(entry.id).catch(() => null);
    back.hidden = !card;
    back.onclick = () => onCard(card);
  }

  node.addEventListener("toggle", write);
  node.addEventListener("toggle", findCard);
  update(first);
  return { node, update, id: () => first.id, now: () => entry, way: `${first.from} ${first.to}` };
}

/** Return whether an entry has these words in it; `words` are in small letters. */
function says(entry, words) {
  const all = [entry.about, entry.method, entry.path, entry.status, entry.failed];
  const bodies = [entry.request, entry.response].map((body) => JSON.stringify(body ?? ""));
  return [...all, ...bodies].join(" ").toLowerCase().includes(words);
}

/**
 * The log with its filters.
 * @param {{onClear: Function, onCard: (card: Object) => void}} wanted
 */
export function wireLog({ onClear, onCard }) {
  const id = newId("wire");
  const filter = make(
    "select",
    { id },
    WAYS.map(([value, words]) => make("option", { value }, words)),
  );
  const search = make("input.text", { type: "search", id: `${id}-search`, autocomplete: "off" });
  const clear = make("button.button.is-small", { type: "button", onclick: onClear }, "Clear");
  const scope = make("div.wire-scope", { hidden: true });
  const none = make("p.quiet", { role: "status" }, "No requests yet.");
  const list = make("div.wire");
  /** @type {Map<number, ReturnType<typeof wireEntry>>} */
  const entries = new Map();
  /** The message whose requests alone are shown, and their numbers. */
  let card = null;
  let ofCard = new Set();

  const isWanted = (entry) =>
    (!filter.value || entry.way === filter.value) &&
    (!card || ofCard.has(entry.id())) &&
    (!search.value.trim() || says(entry.now(), search.value.trim().toLowerCase()));

  function sift() {
    for (const entry of entries.values()) entry.node.hidden = !isWanted(entry);
    none.hidden = [...entries.values()].some(isWanted);
    none.textContent = entries.size ? "No request matches." : "No requests yet.";
  }

  const findAgain = settled(FIND_MILLISECONDS, async () => {
    const wanted = card;
    if (!wanted) return;
    const found = await requestsOf(wanted.job).catch(() => []);
    if (card !== wanted) return;
    ofCard = new Set(found);
    sift();
  });

  function showAll() {
    card = null;
    scope.hidden = true;
    sift();
    search.focus();
  }

  function put(entry) {
    findAgain();
    const known = entries.get(entry.id);
    if (known) {
      known.update(entry);
      known.node.hidden = !isWanted(known);
      return;
    }
    const made = wireEntry(entry, onCard);
    made.node.hidden = !isWanted(made);
    entries.set(entry.id, made);
    list.prepend(made.node);
    none.hidden ||= isWanted(made);
    if (entries.size <= KEPT) return;
    const [oldest, { node }] = entries.entries().next().value;
    node.remove();
    entries.delete(oldest);
  }

  filter.addEventListener("change", sift);
  search.addEventListener("input", sift);
  const small = (words, onclick) =>
    make("button.button.is-small", { type: "button", onclick }, words);
  return {
    node: make(
      "div",
      {},
      make(
        "div.wire-tools",
        {},
        make("div.picker", {}, make("label", { for: search.id }, "Search"), search, clear),
        make("div.picker", {}, make("label", { for: id }, "Show"), filter),
      ),
      scope,
      none,
      list,
    ),
    put,
    /** Take all that is known, oldest first, in place of what stood there. */
    begin(known) {
      entries.clear();
      fill(list);
      for (const entry of known) put(entry);
      sift();
    },
    /** Show the requests of one card alone, from now on. */
    showOnly(message) {
      card = message;
      ofCard = new Set();
      search.value = "";
      filter.value = "";
      fill(
        scope,
        make("p", {}, "Only the requests of one card."),
        make(
          "div.shortcuts",
          {},
          small("Show the card", () => onCard(message)),
          small("Show all requests", showAll),
        ),
      );
      scope.hidden = false;
      findAgain();
      sift();
    },
  };
}
