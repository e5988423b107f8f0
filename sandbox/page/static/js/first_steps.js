// The first steps: a strip that says what can be done here, until it is closed in this browser.

import { fill, make, the } from "./dom.js";
import { icon } from "./icons.js";
import { openPanel } from "./panel.js";
import { goTo, on, state } from "./state.js";

const KEPT = "first-steps";
const CLOSED = "closed";
const POINTED_MILLISECONDS = 2400;
const strip = the("#first-steps");

/** Return the line to try: the first command of the app, with a short script. */
export function firstLine() {
  const [first] = state.app.commands;
  return first ? `${first.command} Hello team` : "";
}

/** Return whether a command can be typed here and be answered in public. */
const isOpen = (channel) => channel && !channel.read_only && channel.kind !== "im";

/** Put the line to try into the composer; what was begun there stays. */
function typeCommand() {
  const places = [...state.channels.values()];
  if (!isOpen(state.channels.get(state.channel))) {
    const open = places.find((each) => isOpen(each) && each.has_app) ?? places.find(isOpen);
    if (open) goTo(open.id);
  }
  const input = the("#composer textarea");
  if (!input.value.trim()) {
    input.value = firstLine();
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }
  input.focus();
}

/** Show where one becomes somebody else; on narrow screens it lies in the drawer. */
function pointAtPeople() {
  if (the("#sidebar").inert) the("#open-sidebar").click();
  const people = the("#people");
  people.querySelector("input:checked")?.focus();
  people.classList.add("is-pointed-at");
  setTimeout(() => people.classList.remove("is-pointed-at"), POINTED_MILLISECONDS);
}

function step(number, words, about, onclick) {
  return make(
    "li",
    {},
    make(
      "button.first-step",
      { type: "button", onclick },
      make("span.first-step-number", { "aria-hidden": "true" }, String(number)),
      make("span.first-step-words", {}, make("strong", {}, words), " ", make("span", {}, about)),
    ),
  );
}

function close() {
  localStorage.setItem(KEPT, CLOSED);
  strip.hidden = true;
  the("#composer textarea").focus();
}

on("snapshot", () => {
  strip.hidden = localStorage.getItem(KEPT) === CLOSED;
  const [first] = state.app.commands;
  fill(
    strip,
    make(
      "ol",
      {},
      first && step(1, `Type ${first.command}`, "Turn a sentence into a video.", typeCommand),
      step(2, "Switch user", "See it as somebody else.", pointAtPeople),
      step(3, "Break something", "Watch what people are told.", () => openPanel("scenarios")),
    ),
    make(
      "button.icon-button",
      { type: "button", "aria-label": "Close the first steps", onclick: close },
      icon("close"),
    ),
  );
});
