// One message as it stands in a channel or in a thread.

import { warn } from "./announce.js";
import { press } from "./api.js";
import { drawBlock } from "./blocks.js";
import { formatDate, moment, time } from "./dates.js";
import { arrange, fill, make } from "./dom.js";
import { sizeWords } from "./files.js";
import { icon } from "./icons.js";
import { mrkdwn } from "./mrkdwn.js";
import { unreadReplies } from "./reads.js";
import { messageMenu } from "./shortcuts.js";
import { authorName, goTo, messageAt, repliesTo, state, tell } from "./state.js";

const TOGETHER_SECONDS = 300;
const HUES = 6;

/** Return the sign of a person, or of the app. */
export function avatar(userId, isApp = userId === state.app.user) {
  const name = isApp ? state.app.name : (state.users.get(userId)?.name ?? "?");
  const hue = isApp ? "app" : String(Math.max(0, state.people.indexOf(userId)) % HUES);
  return make(
    "span.avatar",
    { "aria-hidden": "true", data: { hue } },
    name.slice(0, 1).toUpperCase(),
  );
}

/** Return whether a message follows right on another of the same person, and needs no name. */
export function followsOn(message, before) {
  return Boolean(
    before &&
    before.user === message.user &&
    !before.blocks &&
    !message.blocks &&
    before.is_ephemeral === message.is_ephemeral &&
    Number(message.ts) - Number(before.ts) < TOGETHER_SECONDS &&
    isSameDay(message, before),
  );
}

export function isSameDay(message, other) {
  return moment(message.ts).toDateString() === moment(other.ts).toDateString();
}

/** What a message is made of, by its JSON: what an edit leaves as it was is not drawn anew. */
const drawnParts = new WeakMap();

function drawBody(node, message) {
  const surface = {
    name: `${message.channel}/${message.ts}`,
    act: (action) => press(message, action),
    warn,
  };
  const draw = (part) => {
    if (typeof part === "string") return make("div.text-only", {}, mrkdwn(part));
    return part.url_private ? sharedFile(part) : drawBlock(part, surface);
  };
  const before = drawnParts.get(node) ?? new Map();
  const parts = new Map();
  const content = message.blocks?.length ? message.blocks : [message.text];
  for (const part of [...content, ...(message.files ?? [])]) {
    // The same again gets a key of its own.
    let key = JSON.stringify(part);
    while (parts.has(key)) key += "+";
    parts.set(key, before.get(key) ?? draw(part));
  }
  drawnParts.set(node, parts);
  arrange(node, [...parts.values()]);
}

/** Return a file that is shared in a message: the link to it, and what plays it if it is a video. */
function sharedFile(file) {
  const address = `/api/${encodeURIComponent(state.me)}/files/${encodeURIComponent(file.id)}`;
  if (file.filetype !== "mp4") return fileLink(file, address);
  const player = make("video.file-video", {
    controls: true,
    preload: "metadata",
    src: address,
    "aria-label": file.title,
  });
  return make("div.file-frame", {}, player, fileLink(file, address));
}

function fileLink(file, address) {
  return make(
    "a.file",
    { href: address, target: "_blank", rel: "noopener" },
    icon("file"),
    make("span.file-name", {}, file.title),
    make("span.file-about", {}, sizeWords(file.size)),
  );
}

/** Return the button under a message that says how many replies it has. */
function threadBar(message) {
  const bar = make("button.thread-bar", {
    type: "button",
    data: { key: `${message.channel}/${message.ts}/thread` },
    onclick: () => goTo(message.channel, message.ts),
  });
  fillThreadBar(bar, message);
  return bar;
}

function fillThreadBar(bar, message) {
  const replies = repliesTo(message.channel, message.ts).filter((each) => !each.is_ephemeral);
  bar.hidden = !replies.length;
  if (bar.hidden) return;
  const fresh = unreadReplies(message.channel, message.ts).length;
  const last = moment(replies.at(-1).ts);
  const people = [...new Set(replies.map((reply) => reply.user))].slice(0, 3);
  fill(
    bar,
    people.map((user) => avatar(user)),
    make("strong", {}, `${replies.length} ${replies.length === 1 ? "reply" : "replies"}`),
    fresh > 0 && make("span.fresh", {}, `${fresh} new`),
    make("span.thread-bar-last", {}, "Last reply ", time(last, "{date_short_pretty} at {time}")),
  );
}

/** Return what stands over a reply that is shown in its channel too. */
function toThread(message) {
  const key = `${message.channel}/${message.ts}/thread`;
  const onclick = () => goTo(message.channel, message.thread_ts);
  return make(
    "div.only-you",
    {},
    icon("reply"),
    make("button.requests-link", { type: "button", data: { key }, onclick }, "Replied to a thread"),
  );
}

/**
 * Return a message as an item of a list.
 * @param {import("./state.js").Message} message
 * @param {{inThread: boolean}} wanted whether it stands in a thread, which shows no threads of its own
 */
export function messageNode(message, { inThread }) {
  const at = moment(message.ts);
  const pattern = inThread ? "{date_short_pretty} at {time}" : "{time}";
  const when = time(at, pattern, { begins: true });
  when.classList.add("when");
  const isApp = Boolean(message.bot_id);
  const reply = { type: "button", "aria-label": "Reply in thread", title: "Reply in thread" };
  const bar = inThread || message.is_ephemeral || message.thread_ts ? null : threadBar(message);
  const replies =
    bar &&
    make(
      "button.icon-button",
      { ...reply, onclick: () => goTo(message.channel, message.ts) },
      icon("reply"),
    );
  const menu = messageMenu(message);
  const tools = (replies || menu) && make("div.message-tools", {}, replies, menu);
  const node = make(
    "li.message",
    { data: { ts: message.ts } },
    message.is_ephemeral && make("div.only-you", {}, icon("note"), "Only visible to you"),
    !inThread && message.thread_ts && toThread(message),
    avatar(message.user, isApp),
    make(
      "div.message-content",
      {},
      make(
        "div.byline",
        {},
        make("span.author", {}, authorName(message)),
        isApp && make("span.badge", {}, "App"),
        when,
        message.job &&
          make(
            "button.requests-link",
            {
              type: "button",
              title: "Show its requests behind the scenes",
              data: { key: `${message.channel}/${message.ts}/requests` },
              onclick: () => tell("requests", messageAt(message.channel, message.ts) ?? message),
            },
            "Requests",
          ),
      ),
      make("div.message-body"),
      make("span.edited", { hidden: true }, "(edited)"),
      bar,
    ),
    tools,
  );
  if (message.is_ephemeral) node.classList.add("is-ephemeral");
  changeMessage(node, message);
  return node;
}

/** Show a message as it is now in the node that was made for it. */
export function changeMessage(node, message) {
  drawBody(node.querySelector(":scope > .message-content > .message-body"), message);
  const edited = node.querySelector(":scope > .message-content > .edited");
  edited.hidden = !message.edited;
  if (message.edited)
    edited.title = formatDate(moment(message.edited.ts), "{date_long} at {time_secs}");
}

/** Write the number of replies under a message anew. */
export function refreshThreadBar(node, message) {
  const bar = node.querySelector(":scope > .message-content > .thread-bar");
  if (bar) fillThreadBar(bar, message);
}
