// What this person sees of the workspace, and who is told when it changes.

import { formsHere } from "./forms_here.js";

/**
 * A message: Slack's own JSON with the channel that it stands in.
 * @typedef {Object} Message
 * @property {string} channel
 * @property {string} ts
 * @property {string} user
 * @property {string} text
 * @property {Object[]} [blocks]
 * @property {string} [thread_ts] on replies only
 * @property {string} [bot_id]
 * @property {{ts: string}} [edited]
 * @property {boolean} is_ephemeral
 */

export const state = {
  /** The server's time at the snapshot, in seconds since 1970. */
  now: 0,
  me: "",
  /** The command that starts the sandbox. */
  command: "",
  people: [],
  users: new Map(),
  app: { user: "", name: "", commands: [] },
  channels: new Map(),
  /** @type {Map<string, Map<string, Message>>} by channel and `ts` */
  messages: new Map(),
  /** @type {Object[]} the open modals of this tab, the lowest first */
  views: [],
  /** What the Home tab of the app shows, or null before it has shown anything. */
  home: null,
  /** Where this person is: a channel, and the `ts` of the message whose thread is open beside it. */
  channel: "",
  thread: "",
};

/** @type {Map<string, Function[]>} */
const followers = new Map();

/**
 * Call `act` each time that something happens: "snapshot", "leave" (before another place is shown),
 * "place", "channels", "message" (the message, and what stood there before), "deleted" (the
 * message), "views" (what changed), "unread".
 */
export function on(what, act) {
  followers.set(what, [...(followers.get(what) ?? []), act]);
}

export function tell(what, ...news) {
  for (const act of followers.get(what) ?? []) act(...news);
}

/** Begin anew with all that the server knows; `hasGap`: more may have happened than was told. */
export function takeSnapshot(snapshot, hasGap) {
  const byId = (list) => new Map(list.map((each) => [each.id, each]));
  state.now = snapshot.now;
  state.me = snapshot.me;
  state.command = snapshot.command;
  state.people = snapshot.people;
  state.users = new Map(Object.entries(snapshot.users));
  state.app = snapshot.app;
  state.channels = byId(snapshot.channels);
  state.messages = new Map();
  for (const message of snapshot.messages) shelf(message.channel).set(message.ts, message);
  state.views = formsHere(snapshot.views);
  tell("snapshot", hasGap);
  tell("views", hasGap ? "reload" : "snapshot");
}

/** Put a message in, or in the place of the one that stood there. */
export function putMessage(message) {
  const before = shelf(message.channel).get(message.ts);
  if (before && JSON.stringify(before) === JSON.stringify(message)) return;
  shelf(message.channel).set(message.ts, message);
  tell("message", message, before);
}

export function deleteMessage(channel, ts) {
  const message = shelf(channel).get(ts);
  if (!message) return;
  shelf(channel).delete(ts);
  tell("deleted", message);
}

export function putChannel(channel) {
  state.channels.set(channel.id, channel);
  tell("channels");
}

/** Take the stack of modals as it is now; `change` says what happened to it. */
export function putViews(views, change = "updated") {
  state.views = formsHere(views);
  tell("views", change);
}

/** Take what the Home tab shows now. */
export function putHome(view) {
  state.home = view;
  tell("home");
}

/** Go to a channel, and to a thread in it if one is named. */
export function goTo(channel, thread = "") {
  if (state.channel === channel && state.thread === thread) return;
  state.channel = channel;
  state.thread = thread;
  tell("leave");
  tell("place");
}

/** Return whether a message is shown in its channel: a reply is only if it was broadcast. */
export function isInChannel(message) {
  return !message.thread_ts || message.subtype === "thread_broadcast";
}

/** Return what is shown in a channel, oldest first. @returns {Message[]} */
export function messagesIn(channel) {
  return sorted(isInChannel, channel);
}

/** Return the replies to a message, oldest first. @returns {Message[]} */
export function repliesTo(channel, ts) {
  return sorted((message) => message.thread_ts === ts, channel);
}

/** Return a message as it stands now. @returns {Message|undefined} */
export function messageAt(channel, ts) {
  return shelf(channel).get(ts);
}

/** Return what a channel is called: a direct message goes by the name of the other one. */
export function channelName(channel) {
  if (channel.kind !== "im") return channel.name;
  return channel.user === state.app.user
    ? state.app.name
    : (state.users.get(channel.user)?.name ?? "");
}

/** Return the name that stands over what somebody wrote. */
export function authorName(message) {
  if (message.bot_id) return state.app.name;
  return state.users.get(message.user)?.name ?? message.user;
}

function shelf(channel) {
  if (!state.messages.has(channel)) state.messages.set(channel, new Map());
  return state.messages.get(channel);
}

function sorted(wanted, channel) {
  const found = [...shelf(channel).values()].filter(wanted);
  return found.sort((one, other) => (one.ts < other.ts ? -1 : 1));
}
