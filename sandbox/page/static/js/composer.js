// Where one writes: messages, and slash commands with suggestions.

import { announce } from "./announce.js";
import { LOST, type } from "./api.js";
import { fill, make, newId } from "./dom.js";
import { icon } from "./icons.js";
import { channelName, on, state } from "./state.js";

/** What was begun and not sent, by person, channel and thread. */
const drafts = new Map();
const TALLEST = 200;

/**
 * Make a composer in `form`.
 * @param {HTMLFormElement} form
 * @param {{thread: () => string, onSent: Function}} wanted
 */
export function composer(form, { thread, onSent }) {
  const listId = newId("commands");
  const input = make("textarea.composer-text", {
    rows: "1",
    "aria-autocomplete": "list",
    "aria-controls": listId,
    enterkeyhint: "send",
  });
  const list = make("div.commands", {
    id: listId,
    role: "listbox",
    "aria-label": "Commands",
    hidden: true,
  });
  const hint = make("p.composer-hint");
  const problem = make("p.composer-error", { role: "alert" });
  const send = make("button.composer-send", { type: "submit", "aria-label": "Send" }, icon("send"));
  const closed = make("p.composer-closed", { hidden: true });
  const box = make("div.composer-box", {}, input, send);
  fill(form, list, problem, box, closed, hint);

  let channel = null;
  let key = "";
  let rows = [];
  let active = -1;
  // The person has moved in the list, or has closed it with Escape.
  let moved = false;
  let dismissed = "";

  /** Return what to write here: a command where one is answered, else a message. */
  function placeholder(to, name) {
    if (thread()) return "Reply to this thread";
    const [first] = state.app.commands;
    const isForApp = to.kind !== "im" || to.user === state.app.user;
    return first && isForApp ? `Try ${first.command} Hello team` : `Message ${name}`;
  }

  function grow() {
    if (input.clientWidth) {
      input.style.height = "auto";
      input.style.height = `${Math.min(input.scrollHeight, TALLEST)}px`;
    }
    send.disabled = !input.value.trim();
  }

  function point(at) {
    rows[active]?.node.removeAttribute("aria-selected");
    active = at;
    const row = rows[active]?.node;
    row?.setAttribute("aria-selected", "true");
    row?.scrollIntoView({ block: "nearest" });
    if (row) input.setAttribute("aria-activedescendant", row.id);
    else input.removeAttribute("aria-activedescendant");
  }

  function choose(command) {
    input.value = `${command} `;
    input.focus();
    changed();
  }

  function row(each) {
    const node = make(
      "div.command",
      { id: newId("command"), role: "option", onclick: () => choose(each.command) },
      make(
        "div",
        {},
        make("strong", {}, each.command),
        " ",
        make("span.command-usage", {}, each.usage_hint),
      ),
      make("div.command-about", {}, each.description),
    );
    return { command: each.command, node };
  }

  function suggest() {
    const typed = /^\/\S*$/.test(input.value) && input.value !== dismissed ? input.value : null;
    const found =
      typed && !thread()
        ? state.app.commands.filter((each) => each.command.startsWith(typed.toLowerCase()))
        : [];
    const same =
      found.map((each) => each.command).join() === rows.map((each) => each.command).join();
    if (same && !list.hidden === found.length > 0) return;
    rows = found.map(row);
    moved = false;
    list.hidden = !rows.length;
    fill(
      list,
      make("p.commands-head", { "aria-hidden": "true" }, `Commands of ${state.app.name}`),
      rows.map((each) => each.node),
    );
    active = -1;
    point(rows.length ? 0 : -1);
    if (rows.length) announce(`${rows.length} ${rows.length === 1 ? "command" : "commands"}`);
  }

  function usage() {
    const known = state.app.commands.find((each) => input.value.startsWith(`${each.command} `));
    fill(
      hint,
      known && !thread()
        ? [make("strong", {}, known.command), ` ${known.usage_hint}`]
        : [
            make("kbd", {}, "Enter"),
            " to send, ",
            make("kbd", {}, "Shift"),
            " + ",
            make("kbd", {}, "Enter"),
            " for a new line",
          ],
    );
  }

  function changed() {
    if (input.value !== dismissed) dismissed = "";
    problem.textContent = "";
    drafts.set(key, input.value);
    grow();
    suggest();
    usage();
  }

  async function submit() {
    const text = input.value;
    if (!text.trim() || form.getAttribute("aria-busy") === "true") return;
    const sentTo = key;
    input.value = "";
    changed();
    form.setAttribute("aria-busy", "true");
    const outcome = await type(channel.id, text, thread());
    form.removeAttribute("aria-busy");
    if (outcome.ok || outcome.error?.shown) {
      if (outcome.ok) onSent();
      return;
    }
    // Nothing that was typed is lost, wherever the person has gone meanwhile.
    const all = [text, drafts.get(sentTo)].filter(Boolean).join("\n");
    drafts.set(sentTo, all);
    if (sentTo !== key) return;
    input.value = all;
    changed();
    problem.textContent = outcome.error.text;
  }

  on("connection", (isThere) => {
    if (isThere && problem.textContent === LOST) problem.textContent = "";
  });
  // Its height follows from its width: it has none while its pane is hidden, and lines wrap anew.
  let width = 0;
  new ResizeObserver(() => {
    if (input.clientWidth === width) return;
    width = input.clientWidth;
    grow();
  }).observe(input);
  input.addEventListener("input", changed);
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const isOpen = !list.hidden;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (isOpen && step) {
      event.preventDefault();
      moved = true;
      point((active + step + rows.length) % rows.length);
    } else if (isOpen && event.key === "Escape") {
      event.preventDefault();
      dismissed = input.value;
      suggest();
    } else if (isOpen && event.key === "Tab" && !event.shiftKey) {
      event.preventDefault();
      choose(rows[active].command);
    } else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      const isWhole = rows.some((each) => each.command === input.value.trim());
      if (isOpen && (moved || !isWhole)) choose(rows[active].command);
      else submit();
    }
  });
  list.addEventListener("mousedown", (event) => event.preventDefault());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });

  return {
    /** Write to this channel from now on. */
    moveTo(to) {
      const now = `${state.me}/${to.id}/${thread()}`;
      channel = to;
      const name = to.kind === "im" ? channelName(to) : `#${to.name}`;
      const words = thread() ? `Reply in ${name}` : `Message ${name}`;
      input.placeholder = placeholder(to, name);
      input.setAttribute("aria-label", words);
      box.hidden = Boolean(to.read_only);
      hint.hidden = Boolean(to.read_only);
      closed.hidden = !to.read_only;
      closed.textContent = to.read_only ?? "";
      if (now === key) return;
      key = now;
      input.value = drafts.get(key) ?? "";
      changed();
    },
  };
}
