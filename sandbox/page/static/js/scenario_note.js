// Plays scenarios, and the note over the channel in which they explain themselves.

import { fill, make, the } from "./dom.js";
import { icon } from "./icons.js";
import { SCENARIOS } from "./scenarios.js";
import { CannotGoOn, newStage } from "./stage.js";
import { goTo, on, state } from "./state.js";

const note = the("#scenario");
/** What plays now: its stage, and whose page it was begun on. */
let playing = null;

const button = (words, onclick, tag = "button.button.is-small") =>
  make(tag, { type: "button", onclick }, words);

function close() {
  note.hidden = true;
  note.removeAttribute("aria-labelledby");
  fill(note);
  (the("#composer textarea") ?? note).focus();
}

function open(scenario, steps, tools) {
  const title = make("h2", { id: "scenario-title" }, icon("play"), scenario.title);
  fill(note, make("div.scenario-head", {}, title, tools), steps);
  note.setAttribute("aria-labelledby", title.id);
  note.hidden = false;
}

/** Play a scenario from its beginning; what plays already is stopped first. */
export async function play(scenario) {
  await stop();
  const steps = make("ol.scenario-steps");
  const stage = newStage((words) => steps.append(make("li", {}, words)));
  const current = { stage, person: state.me };
  playing = current;
  open(scenario, steps, button("Stop", () => stage.stop()));
  try {
    await scenario.play(stage);
  } catch (error) {
    // A person who presses Stop knows why it ends.
    if (error instanceof CannotGoOn) stage.say(error.message);
    else if (!stage.signal.aborted) throw error;
    else stage.say("Stopped.");
  } finally {
    await stage.end();
    if (playing === current) {
      playing = null;
      finish(scenario, stage, steps);
    }
  }
}

async function stop() {
  if (!playing) return;
  const { stage } = playing;
  playing = null;
  await stage.end();
}

/** Say that all is as before, and offer what to look at. */
function finish(scenario, { card, channel, place }, steps) {
  const hadFocus = note.contains(document.activeElement);
  const again = button("Play again", () => play(scenario));
  const exit = { type: "button", "aria-label": "Close the scenario", onclick: close };
  const tools = make(
    "div.scenario-tools",
    {},
    place && button("Open the direct message", () => goTo(place)),
    !place && card && button("Open the thread", () => goTo(channel, card.ts)),
    again,
    make("button.icon-button", exit, icon("close")),
  );
  open(scenario, steps, tools);
  note.append(make("p.scenario-end", {}, "Everything works again."));
  if (hadFocus) again.focus();
}

on("snapshot", () => {
  if (playing && playing.person !== state.me) playing.stage.stop();
});
window.addEventListener("pagehide", () => playing?.stage.end({ keepalive: true }));

/** The list of scenarios; `onPlay` is called before one is played. */
export function scenarioList(onPlay) {
  const begin = (scenario) => {
    onPlay();
    play(scenario);
  };
  const rows = SCENARIOS.map((each) =>
    make(
      "li.scenario-row",
      {},
      make(
        "button.button.is-small",
        { type: "button", "aria-label": `Play “${each.title}”`, onclick: () => begin(each) },
        icon("play"),
        "Play",
      ),
      make("div", {}, make("strong", {}, each.title), make("p", {}, each.about)),
    ),
  );
  const about =
    "Each one asks for a video as you, breaks something on the way, and explains what you see. " +
    "At the end everything is put back.";
  return { node: make("div", {}, make("p.quiet", {}, about), make("ul.scenario-rows", {}, rows)) };
}
