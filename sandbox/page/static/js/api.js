// The page's talk with the sandbox's server: actions of a person, and the stream of events.

import { acting } from "./forms_here.js";
import {
  deleteMessage,
  putChannel,
  putHome,
  putMessage,
  putViews,
  state,
  takeSnapshot,
  tell,
} from "./state.js";

export const LOST = "The sandbox does not answer. Is it still running?";
const AGAIN_MILLISECONDS = 1500;
// Slack gives an app three seconds; what takes much longer than that does not come.
const ANSWER_MILLISECONDS = 10_000;

/** Who this is, by name or id; the server remembers nobody. */
let person = "";
let stream = null;
let cursor = "";
// How many tries to connect have failed since the last that did not.
let failures = 0;
/** Who follows what happens behind the scenes. */
const panelFollowers = new Set();
// Something may have happened that the stream did not report.
let hasGap = false;

/** Ask the server, and wait for as long as an answer may take. */
const ask = (path, how = {}) =>
  fetch(path, { ...how, signal: AbortSignal.timeout(ANSWER_MILLISECONDS) });

/**
 * Send what a person does; the answer says how it went.
 * @returns {Promise<{ok: boolean, error?: {code: string, text: string, shown?: boolean}}>}
 */
const post = (path, body, how = {}) =>
  send(path, JSON.stringify(body), "application/json", how);

async function send(path, body, type, how = {}) {
  try {
    const response = await ask(path, {
      ...how,
      method: "POST",
      headers: { "Content-Type": type },
      body,
    });
    const said = await response.json();
    if (response.ok) return said;
    return { ok: false, error: { code: String(response.status), text: String(said.error) } };
  } catch {
    return { ok: false, error: { code: "lost", text: LOST } };
  }
}

/** Do something as the person whose page this is; modals that came of it are shown at once. */
async function act(path, body) {
  const as = person;
  const outcome = await acting(post(`/api/${encodeURIComponent(as)}/${path}`, body));
  if (as !== person) return outcome;
  if (outcome.views) putViews(outcome.views, "outcome");
  if (outcome.message) putMessage(outcome.message);
  return outcome;
}

/** Type into a channel or a thread: a slash command, or an ordinary message. */
export const type = (channel, text, thread) =>
  act("type", { channel, text, thread_ts: thread || null });

/** Press or choose something in a message. */
export const press = (message, action) =>
  act("press", { channel: message.channel, ts: message.ts, ...action });

/** Choose a shortcut of the app, for this message if one is named. */
export const shortcut = (name, message) =>
  act("shortcut", message ? { name, channel: message.channel, ts: message.ts } : { name });

/** Open the Home tab of the app. */
export const openHome = () => act("home", { tab: "home" });

/** Have somebody else ask for a video. */
export const askAs = (name, wanted) => post(`/api/${encodeURIComponent(name)}/ask`, wanted);

/** Upload a file; the answer has it as Slack shows it. */
export const upload = (file) =>
  send(
    `/api/${encodeURIComponent(person)}/files?name=${encodeURIComponent(file.name)}`,
    file,
    file.type || "application/octet-stream",
  );

/** Do something in a modal: "press", "options", "submit" or "close". */
export const inView = (id, action, body) => act(`views/${encodeURIComponent(id)}/${action}`, body);

/**
 * Turn something behind the scenes; the stream brings what comes of it.
 * @param {Object} [how] for `fetch`
 */
export async function turn(what, body, how) {
  const outcome = await post(`/api/panel/${what}`, body, how);
  // Where nothing changed there is no news, and what was turned on the page has to be turned back.
  // Otherwise the stream may have reported more already: this answer must not undo that.
  if (!outcome.ok && outcome.panel) tell("panel", outcome.panel);
  return outcome;
}

/** Return what stands behind the scenes, the requests so far with it. */
export async function readPanel() {
  const response = await ask("/api/panel");
  return response.json();
}

const read = async (path) => (await ask(`/api/${encodeURIComponent(person)}/${path}`)).json();

/** Return the numbers of the requests that belong to a job of the bot. */
export const requestsOf = async (job) => (await read(`jobs/${encodeURIComponent(job)}/requests`)).ids;

/** Return the card that a request belongs to, or null. */
export const cardOf = async (number) => (await read(`requests/${number}/card`)).card;

/** Become somebody: read all that they see, and follow what happens from there. */
export async function become(name) {
  person = name;
  leave();
  cursor = "";
  try {
    const response = await ask(`/api/${encodeURIComponent(name)}/snapshot`);
    if (response.status === 404) {
      tell("nobody");
      return;
    }
    if (!response.ok) throw new Error(response.statusText);
    const snapshot = await response.json();
    if (name !== person) return;
    cursor = snapshot.cursor;
    takeSnapshot(snapshot, hasGap);
    hasGap = false;
    follow();
  } catch {
    if (name !== person) return;
    disconnected();
    setTimeout(() => name === person && become(name), AGAIN_MILLISECONDS);
  }
}

/** Follow what happens behind the scenes too, or no longer: it is one stream for all of it. */
export function followPanel(follower, wanted) {
  const before = panelFollowers.size;
  if (wanted) panelFollowers.add(follower);
  else panelFollowers.delete(follower);
  if (stream && Boolean(before) !== Boolean(panelFollowers.size)) follow();
}

const ON_EVENT = {
  message: ({ message }) => putMessage(message),
  message_deleted: ({ channel, ts }) => deleteMessage(channel, ts),
  channel: ({ channel }) => putChannel(channel),
  views: ({ views, change }) => putViews(views, change),
  reload: () => becomeAgain(person),
  home: ({ view }) => putHome(view),
  panel: (panel) => tell("panel", panel),
  wire: ({ entry }) => tell("wire", entry),
  wire_cleared: () => tell("wire cleared"),
};

/** Tell that nothing connects; where a second try fails too, nobody is there. */
function disconnected() {
  failures += 1;
  tell("connection", false, failures > 1);
}

/** Become who one is already, after something was missed. */
function becomeAgain(name) {
  hasGap = true;
  become(name);
}

function leave() {
  stream?.close();
  stream = null;
}

// A browser has six connections to a server for all its tabs: those that nobody sees leave theirs.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) leave();
  else if (cursor && !stream) follow();
});

function follow() {
  leave();
  if (document.hidden) return;
  const wanted = new URLSearchParams({ as: state.me, after: cursor });
  if (panelFollowers.size) wanted.set("panel", "1");
  const opened = new EventSource(`/api/events?${wanted}`);
  stream = opened;
  opened.onopen = () => {
    failures = 0;
    tell("connection", true);
  };
  opened.onerror = () => {
    disconnected();
    // It tries again by itself, but not where the answer was no stream at all.
    if (opened.readyState === EventSource.CLOSED && opened === stream) {
      const as = person;
      setTimeout(() => opened === stream && as === person && becomeAgain(as), AGAIN_MILLISECONDS);
    }
  };
  for (const [name, take] of Object.entries(ON_EVENT)) {
    opened.addEventListener(name, (event) => {
      if (opened !== stream) return;
      cursor = event.lastEventId || cursor;
      take(JSON.parse(event.data));
    });
  }
}
