// One modal: its fields, and how it changes under a person's hands without losing what they typed.

import { LOST, inView } from "./api.js";
import { drawBlock } from "./blocks.js";
import { isControl, valueIn } from "./controls.js";
import { arrange, fill, focusable, make, newId } from "./dom.js";
import { field } from "./fields.js";
import { icon } from "./icons.js";
import { plainText } from "./texts.js";

/** Return a block as text without what its fields begin with: that does not count once it is open. */
function shapeOf(block) {
  return JSON.stringify(block, (key, value) => (key.startsWith("initial_") ? undefined : value));
}

/**
 * Return a modal as a form.
 * @param {Object} first the view as it is now
 * @param {{onSubmit: Function, onBack: Function, onClose: Function}} actions
 */
export function viewForm(first, { onSubmit, onBack, onClose }) {
  const titleId = newId("view-title");
  const title = make("h2.view-title", { id: titleId });
  const back = make(
    "button.icon-button.view-back",
    { type: "button", onclick: onBack },
    icon("back"),
  );
  const exit = { type: "button", "aria-label": "Close", onclick: onClose };
  const close = make("button.icon-button.view-close", exit, icon("close"));
  const notice = make("div.view-notice", { role: "alert", hidden: true });
  const body = make("div.view-body", { role: "group", "aria-labelledby": titleId });
  const cancel = make("button.button", { type: "button", onclick: onBack });
  const submit = make("button.button.is-primary.view-submit", { type: "submit" });
  const foot = make("div.view-foot", {}, cancel, submit);
  const head = make("div.view-head", {}, back, title, close);
  const node = make("form.view", { novalidate: true }, head, notice, body, foot);

  let view = first;
  /** @type {Map<string, {shape: string, node: HTMLElement, field?: Object}>} by block id */
  let blocks = new Map();
  /** @type {Map<string, {block: string, action: string, made: Object}>} */
  const controls = new Map();

  const surface = {
    name: first.id,
    act: (action) => inView(view.id, "press", { ...action, values: values() }),
    options: (menu) => inView(view.id, "options", { ...menu, values: values() }),
    stateOf(blockId, item) {
      const typed = controls.get(`${blockId}/${item.action_id}`)?.made.state();
      const known = typed ?? view.state?.values?.[blockId]?.[item.action_id];
      return known?.type === item.type ? known : undefined;
    },
    keep(blockId, item, made) {
      const key = `${blockId}/${item.action_id}`;
      controls.set(key, { block: blockId, action: item.action_id, made });
    },
    warn: say,
  };

  /** Return all fields as they stand, by block id and action id. */
  function values() {
    const all = {};
    for (const { block, action, made } of controls.values()) {
      (all[block] ??= {})[action] = valueIn(made.state());
    }
    return all;
  }

  function say(words) {
    notice.hidden = !words;
    fill(notice, words && icon("note"), words);
  }

  function drawn(block) {
    const shape = shapeOf(block);
    const there = blocks.get(block.block_id);
    if (there?.shape === shape) return there;
    if (block.type !== "input") return { shape, node: drawBlock(block, surface) };
    const made = field(block, surface);
    return { shape, node: made.node, field: made };
  }

  function drawBlocks() {
    const focus = focusInside();
    const redrawn = new Map(view.blocks.map((block) => [block.block_id, drawn(block)]));
    for (const [key, { block }] of controls) {
      if (!redrawn.has(block) || !hasElement(block, key)) controls.delete(key);
    }
    blocks = redrawn;
    arrange(
      body,
      [...blocks.values()].map((each) => each.node),
    );
    // Where nothing in it takes the focus, keys can scroll only the body itself.
    if (body.querySelector("a, button, input, textarea")) body.removeAttribute("tabindex");
    else body.tabIndex = 0;
    focus?.();
  }

  /** Return whether the view still has the element of a control. */
  function hasElement(blockId, key) {
    const block = view.blocks.find((each) => each.block_id === blockId);
    const items = [block.element, block.accessory, ...(block.elements ?? [])];
    return items.some(
      (item) => item?.action_id && isControl(item) && key === `${blockId}/${item.action_id}`,
    );
  }

  /** Return how to put the focus back where it is now, if what has it is drawn anew. */
  function focusInside() {
    const active = document.activeElement;
    if (!body.contains(active) || !active.dataset.key) return null;
    const { key } = active.dataset;
    const [start, end] = [active.selectionStart, active.selectionEnd];
    return () => {
      if (active.isConnected) return;
      const again = body.querySelector(`[data-key="${CSS.escape(key)}"]`);
      again?.focus();
      if (start !== null && start !== undefined) again?.setSelectionRange?.(start, end);
    };
  }

  function showErrors() {
    const errors = view.errors ?? {};
    let wrong = null;
    for (const [blockId, { field: shown }] of blocks) {
      shown?.showError(errors[blockId] ?? "");
      if (shown && errors[blockId]) wrong ??= shown;
    }
    const astray = Object.entries(errors).filter(([blockId]) => !blocks.get(blockId)?.field);
    say([view.notice, ...astray.map(([, words]) => words)].filter(Boolean).join(" "));
    wrong?.focus();
  }

  /** Return whether a client lets it pass; if not, what is wrong stands under the fields. */
  function isComplete() {
    const shown = [...blocks.values()].filter((each) => each.field).map((each) => each.field);
    for (const each of shown) each.showError(each.wrong());
    const wrong = shown.find((each) => each.wrong());
    wrong?.focus();
    return !wrong;
  }

  function dress() {
    title.textContent = plainText(view.title);
    cancel.textContent = plainText(view.close) || "Cancel";
    submit.textContent = plainText(view.submit) || "Submit";
    submit.hidden = !view.submit;
    cancel.hidden = !view.submit && !view.close;
  }

  node.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (submit.hidden || submit.getAttribute("aria-busy") === "true") return;
    say("");
    if (!isComplete()) return;
    submit.setAttribute("aria-busy", "true");
    const outcome = await onSubmit(values());
    submit.removeAttribute("aria-busy");
    showErrors();
    if (!outcome.ok && !view.notice) say(outcome.error.text);
  });
  node.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) node.requestSubmit();
  });

  dress();
  drawBlocks();
  return {
    id: first.id,
    node,
    titleId,
    /** Show the view as it is now. */
    update(now) {
      const before = view;
      view = now;
      dress();
      if (now.hash !== before.hash) drawBlocks();
      const problems = (each) => JSON.stringify([each.errors, each.notice]);
      if (problems(now) !== problems(before)) showErrors();
    },
    /** Say which modal lies under it, or none. */
    lieOver(under) {
      back.hidden = !under;
      if (under) back.setAttribute("aria-label", `Back to ${plainText(under.title)}`);
    },
    /** Say no longer that the sandbox does not answer. */
    answersAgain() {
      if (notice.textContent === LOST) showErrors();
    },
    /** Put the focus where filling it in begins. */
    begin() {
      const asked = view.blocks.find((block) => block.element?.focus_on_load);
      const first_ = asked ?? view.blocks.find((block) => block.type === "input");
      const there = first_ && blocks.get(first_.block_id)?.field;
      if (there) there.focus();
      else (focusable(body)[0] ?? (submit.hidden ? close : submit)).focus();
    },
  };
}
