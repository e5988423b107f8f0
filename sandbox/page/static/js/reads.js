// What a person has read: the newest `ts` seen in each channel and thread, kept in this tab.

import { messageAt, on, repliesTo, state, tell } from "./state.js";

const KEPT = "read";
const OPENED = "opened";
// What was there when the page was opened first counts as read.
let opened = sessionStorage.getItem(OPENED) ?? "";

/** @type {Object<string, Object<string, string>>} by person, then by channel or channel/thread */
const read = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");

const keyOf = (channel, thread) => (thread ? `${channel}/${thread}` : channel);

function seen(channel, thread) {
  return read[state.me]?.[keyOf(channel, thread)] ?? opened;
}

function isNew(message) {
  return message.user !== state.me && message.ts > seen(message.channel, message.thread_ts);
}

/** Return whether a message, as text or in blocks, mentions this person. */
export function mentionsMe(message) {
  const said = message.blocks ? JSON.stringify(message.blocks) : message.text;
  return said.includes(`<@${state.me}`) || said.includes(`"user_id":"${state.me}"`);
}

/** Return how much there is new in a channel, and how much of it is for this person. */
export function unreadIn(channel) {
  const fresh = [...(state.messages.get(channel.id)?.values() ?? [])].filter(
    (message) => !message.thread_ts && isNew(message),
  );
  const direct = channel.kind === "im" ? fresh : fresh.filter(mentionsMe);
  return { count: fresh.length, mentions: direct.length };
}

/** Return the new replies in the thread of a message. */
export function unreadReplies(channel, ts) {
  return repliesTo(channel, ts).filter(isNew);
}

/** Return the threads of a channel that this person takes part in and that have new replies. */
export function unreadThreads(channel) {
  const fresh = new Map();
  for (const message of state.messages.get(channel.id)?.values() ?? []) {
    if (message.thread_ts && isNew(message)) {
      fresh.set(message.thread_ts, (fresh.get(message.thread_ts) ?? 0) + 1);
    }
  }
  return [...fresh]
    .map(([ts, count]) => ({ ts, count, parent: messageAt(channel.id, ts) }))
    .filter(({ ts, parent }) => takesPart(parent, repliesTo(channel.id, ts)));
}

function takesPart(parent, replies) {
  const all = parent ? [parent, ...replies] : replies;
  return all.some((message) => message.user === state.me || mentionsMe(message));
}

/** Note that this person has seen all there is where they are now. */
export function markRead() {
  if (document.hidden || !state.channel) return;
  const mine = (read[state.me] ??= {});
  let changed = mark(mine, state.channel, "");
  if (state.thread) changed = mark(mine, state.channel, state.thread) || changed;
  if (!changed) return;
  sessionStorage.setItem(KEPT, JSON.stringify(read));
  tell("unread");
}

function mark(mine, channel, thread) {
  let newest = mine[keyOf(channel, thread)] ?? opened;
  const before = newest;
  for (const message of state.messages.get(channel)?.values() ?? []) {
    if ((message.thread_ts ?? "") === thread && message.ts > newest) newest = message.ts;
  }
  mine[keyOf(channel, thread)] = newest;
  return newest !== before;
}

on("snapshot", () => {
  opened ||= String(state.now);
  sessionStorage.setItem(OPENED, opened);
  markRead();
});
on("place", markRead);
on("message", markRead);
document.addEventListener("visibilitychange", markRead);
