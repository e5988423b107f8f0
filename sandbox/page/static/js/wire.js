// The wire log: each request between Slack, the bot and the video service, newest first.

import { formatDate, moment } from "./dates.js";
import { fill, make, newId } from "./dom.js";
import { icon } from "./icons.js";

const KEPT = 500;
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
function wireEntry(first) {
  let entry = first;
  const status = make("span.wire-status");
  const took = make("span.wire-took");
  const inside = make("div.wire-inside");
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
    fill(inside, head, part("Request", entry.request), part("Response", entry.response));
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

  node.addEventListener("toggle", write);
  update(first);
  return { node, update, way: `${first.from} ${first.to}` };
}

/** The log with its filter. */
export function wireLog() {
  const id = newId("wire");
  const filter = make(
    "select",
    { id },
    WAYS.map(([value, words]) => make("option", { value }, words)),
  );
  const none = make("p.quiet", {}, "No requests yet.");
  const list = make("div.wire");
  /** @type {Map<number, ReturnType<typeof wireEntry>>} */
  const entries = new Map();

  const isWanted = (entry) => !filter.value || entry.way === filter.value;

  function sift() {
    for (const entry of entries.values()) entry.node.hidden = !isWanted(entry);
    none.hidden = [...entries.values()].some(isWanted);
  }

  function put(entry) {
    const known = entries.get(entry.id);
    if (known) {
      known.update(entry);
      return;
    }
    const made = wireEntry(entry);
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
  return {
    node: make(
      "div",
      {},
      make("div.picker", {}, make("label", { for: id }, "Show"), filter),
      none,
      list,
    ),
    put,
    /** Take all that is known, oldest first, in place of what stood there. */
    begin(known) {
      entries.clear();
      fill(list);
      none.hidden = false;
      for (const entry of known) put(entry);
    },
  };
}
