// Types, chooses and presses on the page as a person would, slowly enough to be watched.

import { the } from "./dom.js";

const KEY_MILLISECONDS = 28;
const PAUSE_MILLISECONDS = 700;
const LOOK_MILLISECONDS = 50;
const isStill = matchMedia("(prefers-reduced-motion: reduce)");

/** Wait, unless `signal` ends it; then it throws. */
export function wait(milliseconds, signal) {
  return new Promise((done, fail) => {
    signal.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      fail(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      done();
    }, milliseconds);
    signal.addEventListener("abort", stop, { once: true });
  });
}

/** Wait a moment, so that what happened can be seen. */
export const pause = (signal, times = 1) =>
  wait(isStill.matches ? 0 : PAUSE_MILLISECONDS * times, signal);

/** Return what `find` finds once it finds something; null after a number of milliseconds. */
export async function appears(find, milliseconds, signal) {
  for (let waited = 0; waited <= milliseconds; waited += LOOK_MILLISECONDS) {
    const found = find();
    if (found) return found;
    await wait(LOOK_MILLISECONDS, signal);
  }
  return null;
}

function put(input, text) {
  input.value = text;
  input.dispatchEvent(new Event("input", { bubbles: true }));
}

/** Type a text into an empty field, key by key. */
export async function typeInto(input, text, signal) {
  input.focus();
  if (isStill.matches) {
    put(input, text);
    return;
  }
  for (let length = 1; length <= text.length; length += 1) {
    put(input, text.slice(0, length));
    await wait(KEY_MILLISECONDS, signal);
  }
}

/** Type a line into the composer of the channel and send it; what was begun there comes back. */
export async function typeLine(text, signal) {
  const input = the("#composer textarea");
  const draft = input.value;
  try {
    await typeInto(input, text, signal);
    await pause(signal);
    the("#composer").requestSubmit();
  } finally {
    put(input, draft);
  }
}

/** Choose in a field with type-ahead the first option found for `query`, unless it holds one. */
export async function chooseIn(input, query, milliseconds, signal) {
  if (input.value) return;
  await typeInto(input, query, signal);
  const list = document.getElementById(input.getAttribute("aria-controls"));
  const option = await appears(() => list.querySelector("[role=option]"), milliseconds, signal);
  await pause(signal);
  option?.click();
}
