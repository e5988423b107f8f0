// Behind the scenes: the panel with the video service, Slack's errors, and the wire.

import { LOST, followPanel, readPanel, turn } from "./api.js";
import { warn } from "./announce.js";
import { fill, make, the } from "./dom.js";
import { icon } from "./icons.js";
import { jobList } from "./jobs.js";
import { reveal } from "./reveal.js";
import { scenarioList } from "./scenario_note.js";
import { botSwitches, serviceSwitches, slackSwitches } from "./switches.js";
import { on, state } from "./state.js";
import { closeThread } from "./thread.js";
import { wireLog } from "./wire.js";

const pane = the("#panel");
const opener = the("#open-panel");
// As in the style sheet: below these, the panel lies over the channel, and of thread and panel there
// is room for one.
const coversChannel = matchMedia("(max-width: 1000px)");
const roomForBoth = matchMedia("(min-width: 1561px)");

/** Turn something, and say what came of it where that is not what was wanted. */
async function turned(what, body) {
  const outcome = await turn(what, body);
  if (!outcome.ok) warn(outcome.error.text);
  return outcome.ok;
}

const scenarios = scenarioList(() => coversChannel.matches && closePanel());
const service = serviceSwitches(turned);
const jobs = jobList(turned);
const slack = slackSwitches(turned);
const bot = botSwitches(turned);
const wire = wireLog({
  onClear: () => turned("wire/clear", {}),
  onCard(card) {
    if (coversChannel.matches) closePanel();
    reveal(card);
  },
});

const TABS = [
  ["scenarios", "Scenarios", [scenarios.node]],
  ["jobs", "Jobs", [jobs.node]],
  ["service", "Video service", [service.node]],
  ["slack", "Slack", [slack.node, bot.node]],
  ["wire", "Wire", [wire.node]],
].map(([name, words, inside]) => {
  const tab = make(
    "button.tab",
    {
      type: "button",
      role: "tab",
      id: `tab-${name}`,
      "aria-controls": `tab-${name}-panel`,
      onclick: () => open(name),
    },
    words,
  );
  const panel = make(
    "div.tab-panel",
    { role: "tabpanel", id: `tab-${name}-panel`, "aria-labelledby": tab.id },
    inside,
  );
  return { name, tab, panel };
});

function open(name, withFocus = false) {
  for (const each of TABS) {
    const isThis = each.name === name;
    each.tab.setAttribute("aria-selected", String(isThis));
    each.tab.tabIndex = isThis ? 0 : -1;
    each.panel.hidden = !isThis;
    if (isThis && withFocus) each.tab.focus();
  }
}

const tabs = make(
  "div.tabs",
  { role: "tablist", "aria-label": "Behind the scenes" },
  TABS.map((each) => each.tab),
);
tabs.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const at = TABS.findIndex((each) => each.tab === document.activeElement) + step;
  open(TABS[(at + TABS.length) % TABS.length].name, true);
});
const close = make(
  "button.icon-button",
  { type: "button", "aria-label": "Close the panel", onclick: closePanel },
  icon("close"),
);
const reset = make(
  "button.button.is-small",
  {
    type: "button",
    onclick: () => turned("reset", {}),
    title: "Turn every switch off; jobs and messages stay",
  },
  "Reset all",
);
fill(
  pane,
  make(
    "div.pane-head",
    {},
    make("div.pane-title", {}, make("h2", { id: "panel-title" }, "Behind the scenes")),
    reset,
    close,
  ),
  tabs,
  make(
    "div.scroller.panel-body",
    {},
    TABS.map((each) => each.panel),
  ),
);
open("jobs");

function show(panel) {
  service.update(panel);
  jobs.update(panel);
  slack.update(panel);
  bot.update(panel);
}

/** Open the panel, at this tab if one is named. */
export async function openPanel(tab = "") {
  if (tab) open(tab);
  if (!roomForBoth.matches) closeThread();
  pane.hidden = false;
  document.body.classList.add("has-panel");
  opener.setAttribute("aria-expanded", "true");
  close.focus();
  await read();
}

/** Show what stands there, and follow it from there. */
async function read() {
  try {
    const panel = await readPanel();
    if (pane.hidden) return;
    show(panel);
    wire.begin(panel.wire);
    followPanel("panel", true);
  } catch {
    warn(LOST);
  }
}

/** Close the panel, and say whether it was open. */
export function closePanel() {
  if (!leave()) return false;
  opener.focus();
  return true;
}

function leave() {
  if (pane.hidden) return false;
  pane.hidden = true;
  document.body.classList.remove("has-panel");
  opener.setAttribute("aria-expanded", "false");
  followPanel("panel", false);
  return true;
}

opener.prepend(icon("scenes"));
opener.addEventListener("click", () => (pane.hidden ? openPanel() : closePanel()));
on("snapshot", (hasGap) => {
  if (!hasGap || pane.hidden) return;
  // Another run numbers its requests from one: the old ones must be gone before they come.
  followPanel("panel", false);
  read();
});
on("panel", (panel) => pane.hidden || show(panel));
on("wire", (entry) => wire.put(entry));
on("wire cleared", () => wire.begin([]));
on("requests", (card) => {
  wire.showOnly(card);
  openPanel("wire");
});
// Before the thread is shown: it cannot have the focus under the panel.
on("leave", () => state.thread && !roomForBoth.matches && leave());
