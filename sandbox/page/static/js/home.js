// The tabs of the app's direct message: its Home, and the messages.

import { warn } from "./announce.js";
import { inView, openHome } from "./api.js";
import { drawBlock } from "./blocks.js";
import { fill, make, the } from "./dom.js";
import { on, state } from "./state.js";

const bar = the("#app-tabs");
const pane = the("#home");
const rest = [the("#messages-scroller"), the("#composer")];
let tab = "messages";
let place = "";

const TABS = [
  ["home", "Home"],
  ["messages", "Messages"],
].map(([name, words]) => {
  const button = make(
    "button.tab",
    {
      type: "button",
      role: "tab",
      id: `app-tab-${name}`,
      "aria-controls": name === "home" ? "home" : "messages-scroller",
      onclick: () => open(name),
    },
    words,
  );
  return { name, button };
});
fill(
  bar,
  TABS.map((each) => each.button),
);
bar.addEventListener("keydown", (event) => {
  if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  event.preventDefault();
  open(tab === "home" ? "messages" : "home");
  TABS.find((each) => each.name === tab).button.focus();
});

function isAppHere() {
  const channel = state.channels.get(state.channel);
  return state.app.has_home && channel?.kind === "im" && channel.user === state.app.user;
}

async function open(name) {
  tab = name;
  show();
  if (name !== "home") return;
  const outcome = await openHome();
  if (!outcome.ok) warn(outcome.error.text);
}

function show() {
  const isHome = isAppHere() && tab === "home";
  bar.hidden = !isAppHere();
  pane.hidden = !isHome;
  for (const each of rest) each.hidden = isHome;
  for (const { name, button } of TABS) {
    button.setAttribute("aria-selected", String(name === tab));
    button.tabIndex = name === tab ? 0 : -1;
  }
  if (isHome) draw();
}

function draw() {
  const view = state.home;
  if (!view) {
    fill(pane, make("p.quiet", { role: "status" }, "Loading…"));
    return;
  }
  const surface = {
    name: view.id,
    act: (action) => inView(view.id, "press", action),
    options: (menu) => inView(view.id, "options", menu),
    warn,
  };
  const active = document.activeElement;
  const key = pane !== active && pane.contains(active) ? active.dataset.key : "";
  fill(
    pane,
    make(
      "div.home-body",
      {},
      view.blocks.map((block) => drawBlock(block, surface)),
    ),
  );
  if (!key) return;
  // What was pressed may be gone, such as "Back" on the first page.
  const again = pane.querySelector(`[data-key="${CSS.escape(key)}"]`) ?? pane;
  again.focus({ preventScroll: true });
}

on("place", () => {
  const here = `${state.me}/${state.channel}`;
  if (here === place) return;
  place = here;
  tab = "messages";
  show();
});
on("snapshot", show);
on("home", () => !pane.hidden && draw());
