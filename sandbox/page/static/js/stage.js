// What a scenario is played with: switches that are put back, a request, and what came of it.

import { announce } from "./announce.js";
import { askAs, followPanel, readPanel, turn } from "./api.js";
import { the } from "./dom.js";
import { appears, chooseIn, pause, typeLine, wait } from "./hands.js";
import { goTo, messageAt, messagesIn, on, repliesTo, state } from "./state.js";

const FORM_MILLISECONDS = 6000;
const CHANGE_MILLISECONDS = 120_000;
// The bot looks within ten seconds whether what refused it still does.
const TRIES = 12;
const TRY_MILLISECONDS = 1000;
const NAMED = 18;
/** With these, whatever a scenario does not change goes well, and takes a few seconds. */
const WELL = {
  down: false,
  stalled: false,
  key_revoked: false,
  out_of_credit: false,
  callbacks: "once",
};
const QUICK = { queued: 1, generating: 4 };

/** A scenario cannot go on; the message says why to the person who watches. */
export class CannotGoOn extends Error {}

/** Requests that were answered since a scenario follows them. */
let answered = [];
on("wire", (entry) => {
  if (entry.duration_ms !== null) answered.push(entry);
});

/**
 * Begin a scenario.
 * @param {(words: string) => void} onSay shows a sentence of the narration
 */
export function newStage(onSay) {
  const stopper = new AbortController();
  const { signal } = stopper;
  /** How to put back what was changed, by what it was. @type {Map<string, Function>} */
  const changed = new Map();
  let newest = "";
  let script = "";
  let form = null;
  let panel = null;

  const change = (find) =>
    appears(find, CHANGE_MILLISECONDS, signal).then((found) => {
      if (found) return found;
      throw new CannotGoOn("This takes longer than expected, so the scenario ends here.");
    });
  const isNew = (message) => message.bot_id && !message.is_ephemeral && message.ts > newest;
  const isAbout = (message) => JSON.stringify(message).includes(script.slice(0, NAMED));
  const trained = () =>
    panel.service.jobs.findLast((each) => each.kind === "replica" && each.ended === "success")?.id;
  const newIn = (channel) => messagesIn(channel).filter((each) => isNew(each) && isAbout(each));

  async function set(what, body, undo) {
    const outcome = await turn(what, body);
    if (!outcome.ok) throw new CannotGoOn(outcome.error.text);
    const key = `${what} ${Object.keys(undo)}`;
    if (!changed.has(key)) changed.set(key, (how) => turn(what, undo, how));
    return outcome;
  }

  /** Press the button of the form in front, and wait until it is accepted or refused. */
  async function press(submit) {
    submit.click();
    await appears(
      () => !form.isConnected || submit.getAttribute("aria-busy") !== "true",
      FORM_MILLISECONDS,
      signal,
    );
  }

  const stage = {
    signal,
    channel: "",
    card: null,
    /** Where to look at the end, if not in the thread of the card. */
    place: "",
    giveUp(words) {
      throw new CannotGoOn(words);
    },
    say(words) {
      onSay(words);
      announce(words);
    },
    pause: (times) => pause(signal, times),
    stop: () => stopper.abort(),

    /** Set switches of the video service, until the scenario ends. */
    service(switches) {
      const before = Object.keys(switches).map((name) => [name, panel.service[name]]);
      return set("service", switches, Object.fromEntries(before));
    },
    /** Let what a switch of the service broke go well again. */
    mend: (name) => stage.service({ [name]: WELL[name] }),
    /** Have requests need approval or not, until the scenario ends. */
    approval: (on) => set("bot", { approval: on }, { approval: panel.bot.approval }),
    /** Plan what happens with the next request; if it does not come, the plan is dropped. */
    async next(plan) {
      const outcome = await turn("next", plan);
      if (!outcome.ok) throw new CannotGoOn(outcome.error.text);
      changed.set(`plan ${outcome.plan}`, (how) => turn(`next/${outcome.plan}/drop`, {}, how));
    },
    /** Have the app in a channel or not, until the scenario ends. */
    membership(channel, has_app) {
      const before = panel.slack.channels.find((each) => each.id === channel).has_app;
      return set(`channels/${channel}`, { has_app }, { has_app: before });
    },
    /** Invite the app into a channel: it stays there. */
    async invite(channel) {
      await stage.membership(channel, true);
      changed.delete(`channels/${channel} has_app`);
    },

    /** Go where the app can be asked: this channel, if it is one. */
    async begin() {
      if (the("dialog[open]")) throw new CannotGoOn("Close the open form first.");
      panel = await readPanel();
      answered = [];
      followPanel("scenario", true);
      for (const [name, well] of Object.entries(WELL)) {
        if (![well, null].includes(panel.service[name])) await stage.service({ [name]: well });
      }
      const { rate_limited_until: until, pace } = panel.service;
      const limit = { seconds: Math.max(0, until - panel.now), retry_after: true };
      if (until) await set("service", { rate_limit: null }, { rate_limit: limit });
      if (panel.bot.approval) await stage.approval(false);
      const { queued, generating } = pace;
      await set("service", { pace: QUICK }, { pace: { queued, generating } });
      const isOpen = (each) => each.kind !== "im" && each.has_app && !each.read_only;
      const here = state.channels.get(state.channel);
      const place = isOpen(here) ? here : [...state.channels.values()].find(isOpen);
      if (!place) throw new CannotGoOn("There is no channel here that the app is a member of.");
      stage.goTo(place.id);
    },
    goTo(channel) {
      stage.channel = channel;
      goTo(channel);
      the("#messages-scroller").scrollTop = the("#messages-scroller").scrollHeight;
    },

    /**
     * Ask for a video with the form: type the command, choose a replica, and press the button,
     * again if the form is refused.
     * @param {string} words the script
     * @param {Function} [beforeSending] done last
     */
    async ask(words, beforeSending) {
      if (await stage.tryToAsk(words, beforeSending)) return;
      stage.say("The bot may not have noticed yet that all is well again: you press the button again.");
      for (let tries = 0; tries < TRIES; tries += 1) {
        await wait(TRY_MILLISECONDS, signal);
        if (await stage.send()) return;
      }
      throw new CannotGoOn("The form was not accepted: it says what is wrong.");
    },
    /** Ask as above, and return whether the form was accepted. */
    async tryToAsk(words, beforeSending = async () => {}) {
      script = words;
      newest = [...state.messages.values()]
        .flatMap((each) => [...each.keys()])
        .reduce((one, other) => (one > other ? one : other), "");
      await typeLine(`${state.app.commands[0].command} ${words}`, signal);
      form = await appears(() => the("dialog[open] .view"), FORM_MILLISECONDS, signal);
      if (!form) {
        const { name } = state.users.get(state.me);
        throw new CannotGoOn(`No form opened for ${name}. Switch to ana, and play it again.`);
      }
      await pause(signal);
      const replica = form.querySelector("[data-key*='/replica_id/']");
      if (replica && trained()) {
        await chooseIn(replica, trained(), FORM_MILLISECONDS, signal);
      }
      await pause(signal);
      await beforeSending();
      return stage.send();
    },
    /** Press the button of the form in front; return whether it was accepted. */
    async send() {
      const submit = form.querySelector(".view-submit");
      const words = submit.textContent;
      await press(submit);
      if (form.isConnected && submit.textContent !== words) {
        stage.say(
          `The form offers what was asked for before. You press ${submit.textContent} all the same.`,
        );
        await pause(signal, 3);
        await press(submit);
      }
      return !form.isConnected;
    },

    /** Have the others in the channel ask for videos, in turns; who may not is left out. */
    async othersAsk(scripts) {
      const { members } = state.channels.get(stage.channel);
      const people = members.filter((each) => ![state.me, state.app.user].includes(each));
      const left = [...scripts];
      while (left.length) {
        signal.throwIfAborted();
        const person = people.shift();
        if (!person) throw new CannotGoOn("Nobody else here can ask for so many videos now.");
        const wanted = { channel: stage.channel, script: left[0], replica: trained() };
        if (!(await askAs(person, wanted)).ok) continue;
        left.shift();
        people.push(person);
      }
    },
    /** Return how many new cards have both these words in them. */
    count(about, words) {
      const shown = messagesIn(stage.channel).filter(isNew);
      return shown.filter(({ text }) => text.includes(about) && text.includes(words)).length;
    },
    /** Wait for something, for as long as the scenario needs it. */
    until: change,
    /** Wait for something that is worth seeing, and go on without it. */
    glimpse: (find) => appears(find, FORM_MILLISECONDS, signal),

    /** Return the card of the request once it is there. */
    async findCard() {
      const mine = (each) => each.text.includes(`<@${state.me}`);
      stage.card = await change(() => {
        const cards = newIn(stage.channel);
        return cards.findLast(mine) ?? cards.at(-1);
      });
      return stage.card;
    },
    /** Wait until the bot has written into the thread of the card. */
    reply: () => change(stage.hasReply),
    hasReply: () => repliesTo(stage.channel, stage.card.ts).find(isNew),
    /** Let the card be that of the thread where the bot asks about this request with earlier ones. */
    findQuestion() {
      const isFresh = (each) => isNew(each) || each.edited?.ts > newest;
      const all = [...state.messages.get(stage.channel).values()];
      const asked = all.findLast((each) => each.thread_ts && isFresh(each) && isAbout(each));
      stage.card = (asked && messageAt(stage.channel, asked.thread_ts)) ?? stage.card;
    },
    /** Wait until the bot has written about it to this person alone. */
    async directMessage() {
      const own = [...state.channels.values()].find(
        (each) => each.kind === "im" && each.user === state.app.user,
      );
      await change(() => own && newIn(own.id).at(-1));
      return own.id;
    },
    /** Wait until the video service has answered a number of requests like this. */
    requests: (count, isWanted) =>
      change(() => answered.filter((each) => each.to === "service" && isWanted(each)).length >= count),
    /** Wait until the card has changed from what it is now. */
    async cardChange() {
      const shown = () => JSON.stringify(state.messages.get(stage.channel)?.get(stage.card.ts));
      const before = shown();
      await change(() => shown() !== before);
    },

    /**
     * Put everything back, and close a form that was left.
     * @param {Object} [how] for `fetch`, if the page is being left
     */
    async end(how) {
      stopper.abort();
      if (form?.isConnected) form.querySelector(".view-close").click();
      followPanel("scenario", false);
      const back = [...changed.values()].reverse();
      changed.clear();
      await Promise.all(back.map((undo) => undo(how)));
    },
  };
  return stage;
}
