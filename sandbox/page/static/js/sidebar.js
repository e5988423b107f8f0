// The sidebar: who one is, the channels and direct messages, and what is new in them.

import { fill, make, the } from "./dom.js";
import { icon } from "./icons.js";
import { avatar } from "./message.js";
import { unreadIn, unreadThreads } from "./reads.js";
import { channelName, goTo, on, state } from "./state.js";
import { wordsIn } from "./texts.js";

const SIGNS = { public: "hash", private: "lock" };
// The blocks in which cards have their title.
const TITLES = ["header", "rich_text"];
const TITLE_LENGTH = 160;
const THREADS = 5;

function people() {
  const hadFocus = the("#people").contains(document.activeElement);
  fill(
    the("#people"),
    make("legend", {}, "You are"),
    state.people.map((id) => {
      const { name, title } = state.users.get(id);
      const box = make("input", { type: "radio", name: "person", id: `person-${id}`, value: name });
      box.checked = id === state.me;
      const label = make(
        "label",
        { for: box.id },
        avatar(id),
        make("span", {}, name),
        title && make("span.person-title", {}, title),
      );
      return make("div.person", {}, box, label);
    }),
  );
  if (hadFocus) the("#people input:checked").focus();
}

/** Return in a few words what the thread of a message is about: the title of a card. */
function about(parent) {
  const blocks = parent?.blocks ?? [];
  const first = blocks.find(({ type }) => TITLES.includes(type)) ?? blocks[0];
  const written = first ? wordsIn(first) : (parent?.text ?? "");
  const said = written.replace(/<@(\w+)[^>]*>/g, (_, id) => `@${state.users.get(id)?.name ?? id}`);
  const words = said
    .replace(/<[^>]*>/g, "")
    .replace(/:\w+:/g, "")
    .replace(/\s+/g, " ")
    .trim();
  return words.length > TITLE_LENGTH ? `${words.slice(0, TITLE_LENGTH)}…` : words;
}

function row(channel) {
  const { count, mentions } = unreadIn(channel);
  const isHere = channel.id === state.channel;
  const sign =
    channel.kind === "im"
      ? avatar(channel.user)
      : icon(channel.is_archived ? "box" : SIGNS[channel.kind]);
  const button = make(
    "button.place",
    {
      type: "button",
      "aria-current": isHere && !state.thread ? "page" : null,
      data: { channel: channel.id },
      onclick: () => goTo(channel.id),
    },
    sign,
    make(
      "span.place-name",
      {},
      channelName(channel),
      count > 0 && make("span.visually-hidden", {}, ` (${count} new)`),
    ),
    mentions > 0 && make("span.count", { "aria-hidden": "true" }, String(mentions)),
  );
  button.classList.toggle("is-unread", count > 0);
  button.classList.toggle("is-here", isHere);
  const threads = unreadThreads(channel)
    .slice(-THREADS)
    .map(({ ts, count: fresh, parent }) =>
      make(
        "button.place.is-thread.is-unread",
        {
          type: "button",
          title: about(parent),
          data: { thread: ts },
          onclick: () => goTo(channel.id, ts),
        },
        icon("reply"),
        make(
          "span.place-about",
          {},
          make("span.place-name", {}, about(parent)),
          " ",
          make("span.place-news", {}, `${fresh} new ${fresh === 1 ? "reply" : "replies"}`),
        ),
      ),
    );
  return make("li", {}, button, threads);
}

let drawn = "";

function places() {
  const all = [...state.channels.values()];
  const news = all.map((each) => [each, unreadIn(each), unreadThreads(each)]);
  const now = JSON.stringify([state.me, state.channel, state.thread, news]);
  if (now === drawn) return;
  drawn = now;
  const { channel, thread } = the("#sidebar").contains(document.activeElement)
    ? document.activeElement.dataset
    : {};
  const open = all.filter((each) => each.kind !== "im" && !each.is_archived);
  const archived = all.filter((each) => each.kind !== "im" && each.is_archived);
  fill(the("#channels"), [...open, ...archived].map(row));
  fill(the("#direct-messages"), all.filter((each) => each.kind === "im").map(row));
  if (channel) the(`#sidebar [data-channel="${channel}"]`)?.focus();
  else if (thread) the(`#sidebar [data-thread="${thread}"]`)?.focus();
}

let isDue = false;

/** Draw the places anew, once for all that happens at the same time. */
function placesSoon() {
  if (isDue) return;
  isDue = true;
  queueMicrotask(() => {
    isDue = false;
    places();
    mark();
  });
}

/** Say at the button of the drawer that there is something new elsewhere. */
function mark() {
  const elsewhere = [...state.channels.values()].filter((each) => each.id !== state.channel);
  const fresh = elsewhere.some((each) => unreadIn(each).count || unreadThreads(each).length);
  the("#open-sidebar").classList.toggle("has-news", fresh);
}

on("snapshot", () => {
  people();
  placesSoon();
});
for (const what of ["place", "channels", "message", "deleted", "unread"]) on(what, placesSoon);
