// A list of messages that changes by one message at a time and stays where its reader is.

import { capital, formatDate, moment } from "./dates.js";
import { make, whenIdle } from "./dom.js";
import { changeMessage, followsOn, isSameDay, messageNode, refreshThreadBar } from "./message.js";
import { messageAt } from "./state.js";

const AT_ONCE = 30;
const NEAR_PIXELS = 60;

/**
 * Return a list of messages.
 * @param {HTMLElement} scroller what scrolls
 * @param {HTMLElement} list the list inside it
 * @param {{inThread: boolean}} wanted
 */
export function messageList(scroller, list, { inThread }) {
  /** @type {{message: Object, node: HTMLElement}[]} those that are drawn, oldest first */
  let drawn = [];
  /** @type {Object[]} older ones that are drawn when there is time */
  let waiting = [];
  let showing = 0;
  let atEnd = true;
  let lastTop = 0;
  let onEnd = () => {};

  scroller.addEventListener(
    "scroll",
    () => {
      const { scrollTop, scrollHeight, clientHeight } = scroller;
      const isNear = scrollHeight - scrollTop - clientHeight < NEAR_PIXELS;
      const wentUp = scrollTop < lastTop;
      lastTop = scrollTop;
      if (isNear && !atEnd) onEnd();
      // Where lines wrap anew, the end moves away from a reader who has not moved.
      if (!isNear && atEnd && !wentUp) toEnd();
      else atEnd = isNear;
    },
    { passive: true },
  );
  new ResizeObserver(() => atEnd && toEnd()).observe(list);
  new ResizeObserver(() => atEnd && toEnd()).observe(scroller);

  function toEnd() {
    atEnd = true;
    scroller.scrollTop = scroller.scrollHeight;
    lastTop = scroller.scrollTop;
    onEnd();
  }

  const draw = (message) => ({ message, node: messageNode(message, { inThread }) });

  /** Say at a message what depends on the one before it: the day, and whose it is. */
  function join(at) {
    const entry = drawn[at];
    if (!entry) return;
    const before = drawn[at - 1]?.message ?? waiting.at(-1);
    const { message, node } = entry;
    node.classList.toggle("follows-on", followsOn(message, before));
    node.querySelector(":scope > .day")?.remove();
    if (!inThread && !(before && isSameDay(message, before))) {
      const words = capital(formatDate(moment(message.ts), "{day_divider_pretty}"));
      node.prepend(make("div.day", {}, make("span", {}, words)));
    }
  }

  function drawOlder(number) {
    if (number !== showing || !waiting.length) return;
    const entries = waiting.splice(-AT_ONCE).map(draw);
    const nodes = entries.map((each) => each.node);
    drawn = [...entries, ...drawn];
    for (let at = 0; at <= entries.length; at += 1) join(at);
    list.prepend(...nodes);
    whenIdle(() => drawOlder(number));
  }

  /** Return where in `drawn` a message stands, or would stand. */
  function placeOf(ts) {
    let at = drawn.length;
    while (at > 0 && drawn[at - 1].message.ts >= ts) at -= 1;
    return at;
  }

  /** Show a message as it is now; the focus stays, if what has it is still there. */
  function change(at, message) {
    const { node } = drawn[at];
    const active = node.contains(document.activeElement) ? document.activeElement : null;
    drawn[at].message = message;
    changeMessage(node, message);
    join(at);
    if (!active || active.isConnected) return;
    const key = active.dataset.key;
    const again = key && node.querySelector(`[data-key="${CSS.escape(key)}"]`);
    if (!again) node.tabIndex = -1;
    (again || node).focus({ preventScroll: true });
  }

  return {
    toEnd,
    isAtEnd: () => atEnd,
    /** Call `act` when the reader comes to the end. */
    whenAtEnd(act) {
      onEnd = act;
    },
    /** Show these messages and no others, from their end. */
    show(messages) {
      showing += 1;
      waiting = messages.slice(0, -AT_ONCE);
      drawn = messages.slice(-AT_ONCE).map(draw);
      for (let at = 0; at < drawn.length; at += 1) join(at);
      list.replaceChildren(...drawn.map((each) => each.node));
      toEnd();
      const number = showing;
      whenIdle(() => drawOlder(number));
    },
    /** Put a message in, or in the place of what stands there. */
    put(message) {
      const waits = waiting.findIndex((each) => each.ts === message.ts);
      if (waits >= 0) {
        waiting[waits] = message;
        return;
      }
      const follow = atEnd;
      const at = placeOf(message.ts);
      if (drawn[at]?.message.ts === message.ts) change(at, message);
      else {
        drawn.splice(at, 0, draw(message));
        list.insertBefore(drawn[at].node, drawn[at + 1]?.node ?? null);
        join(at);
      }
      join(at + 1);
      if (follow) toEnd();
    },
    remove(ts) {
      waiting = waiting.filter((each) => each.ts !== ts);
      const at = drawn.findIndex((each) => each.message.ts === ts);
      if (at < 0) return;
      drawn.splice(at, 1)[0].node.remove();
      join(at);
    },
    /** Write anew how many replies a message has. */
    refreshReplies(channel, ts) {
      const entry = drawn.find((each) => each.message.ts === ts);
      const message = messageAt(channel, ts);
      if (entry && message) refreshThreadBar(entry.node, message);
    },
  };
}
