// Where one writes: messages, and slash commands with suggestions.

import { announce } from "./announce.js";
import { LOST, type } from "./api.js";
import { fill, make, newId } from "./dom.js";
import { icon } from "./icons.js";
import { globalMenu } from "./shortcuts.js";
import { channelName, on, state } from "./state.js";

/** What was begun and not sent, by person, channel and thread. */
const drafts = new Map();
const TALLEST = 200;
// A command or a mention that is being typed: the last word before the cursor.
const BEGUN = /(?<!\S)[/@][\w-]*$/;

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
  const box = make("div.composer-box", {}, input, thread() ? null : globalMenu(), send);
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

  /** Put a suggestion in the place of what was typed for it. */
  function choose({ whole }) {
    const { selectionStart: at, value } = input;
    const before = value.slice(0, at).replace(BEGUN, "");
    input.value = `${before}${whole} ${value.slice(at).trimStart()}`;
    input.focus();
    input.setSelectionRange(before.length + whole.length + 1, before.length + whole.length + 1);
    changed();
  }

  function row(each) {
    const node = make(
      "div.command",
      { id: newId("command"), role: "option", onclick: () => choose(each) },
      make(
        "div",
        {},
        make("strong", {}, each.whole),
        " ",
        make("span.command-usage", {}, each.beside),
      ),
      each.about && make("div.command-about", {}, each.about),
    );
    return { ...each, node };
  }

  /** Return what can stand for the word that is being typed: commands at the beginning, or people. */
  function suggestions() {
    if (input.value === dismissed) return [];
    const at = input.selectionStart;
    const [word = ""] = input.value.slice(0, at).match(BEGUN) ?? [];
    if (word.startsWith("/") && at === word.length && word === input.value && !thread()) {
      return state.app.commands
        .map((each) => ({
          whole: each.command,
          beside: each.usage_hint,
          about: each.description,
        }))
        .filter(({ whole }) => whole.startsWith(word.toLowerCase()));
    }
    if (!word.startsWith("@") || channel?.kind === "im") return [];
    const people = state.people
      .filter((id) => id !== state.me)
      .map((id) => ({ whole: `@${state.users.get(id).name}`, beside: state.users.get(id).real_name }));
    const app = { whole: `@${state.app.handle}`, beside: `${state.app.name} (app)` };
    return [app, ...people].filter(({ whole }) => whole.startsWith(word.toLowerCase()));
  }

  function suggest() {
    const found = suggestions();
    const names = (all) => all.map((each) => each.whole).join();
    if (names(found) === names(rows) && !list.hidden === found.length > 0) return;
    rows = found.map(row);
    moved = false;
    list.hidden = !rows.length;
    const areCommands = rows[0]?.whole.startsWith("/");
    list.setAttribute("aria-label", areCommands === false ? "People" : "Commands");
    fill(
      list,
      make(
        "p.commands-head",
        { "aria-hidden": "true" },
        areCommands ? `Commands of ${state.app.name}` : "People and apps",
      ),
      rows.map((each) => each.node),
    );
    active = -1;
    point(rows.length ? 0 : -1);
    const kind = areCommands ? "command" : "suggestion";
    if (rows.length) announce(`${rows.length} ${kind}${rows.length === 1 ? "" : "s"}`);
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
      choose(rows[active]);
    } else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      const isWhole = rows.some((each) => input.value.trimEnd().endsWith(each.whole));
      if (isOpen && (moved || !isWhole)) choose(rows[active]);
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
