// What can be pressed or chosen inside messages and modals: each use is sent to the app at once.

import { cannotDraw } from "./cannot_draw.js";
import { confirmed } from "./confirm.js";
import { control, initialState, isControl, valueIn } from "./controls.js";
import { isLink, make, newId } from "./dom.js";
import { floating } from "./floating.js";
import { icon } from "./icons.js";
import { plainText } from "./texts.js";

/**
 * Where an element stands.
 * @typedef {Object} Surface
 * @property {string} name unique on the page
 * @property {(action: Object) => Promise<Object>} act tells the app, and answers with how it went
 * @property {(menu: Object) => Promise<Object>} [options] asks the app for the options of a menu
 * @property {(blockId: string, element: Object) => Object|undefined} [stateOf] what a field holds
 * @property {(blockId: string, element: Object, made: Object) => void} [keep] notes a field
 * @property {(words: string) => void} warn says what went wrong
 */

// Slack "may truncate" the text of a button "with ~30 characters":
// https://docs.slack.dev/reference/block-kit/block-elements/button-element
const LABEL_LENGTH = 30;

/** Send an action to the app once it is confirmed; `node` shows that the answer is awaited. */
async function perform(node, item, block, surface, value) {
  if (node.getAttribute("aria-busy") === "true") return false;
  if (item.confirm && !(await confirmed(item.confirm))) return false;
  const action = { block_id: block.block_id, action_id: item.action_id };
  if (value !== undefined) action.value = value;
  node.setAttribute("aria-busy", "true");
  const outcome = await surface.act(action);
  node.removeAttribute("aria-busy");
  if (!outcome.ok && !outcome.error?.shown) surface.warn(outcome.error.text);
  return true;
}

/** Return what tells an element from all others, also when its message is drawn anew. */
const keyOf = (item, surface) => `${surface.name}/${item.action_id}`;

function button(item, block, surface) {
  const url = item.url && isLink(item.url) ? item.url : null;
  const shown = {
    type: url ? null : "button",
    href: url,
    target: url && "_blank",
    rel: url && "noopener noreferrer",
    "aria-label": item.accessibility_label,
    data: { key: keyOf(item, surface) },
  };
  const label = plainText(item.text);
  const cutLabel = label.length > LABEL_LENGTH ? `${label.slice(0, LABEL_LENGTH - 1)}…` : label;
  const node = make(url ? "a.button" : "button.button", shown, cutLabel);
  if (item.style) node.classList.add(`is-${item.style}`);
  node.addEventListener("click", async (event) => {
    if (!url || !item.confirm) {
      // The browser opens the link; Slack tells the app of it all the same.
      perform(node, item, block, surface);
      return;
    }
    event.preventDefault();
    if (await perform(node, item, block, surface))
      window.open(url, "_blank", "noopener,noreferrer");
  });
  return node;
}

/** Return the button with the dots, and the menu behind it. */
function overflow(item, block, surface) {
  const menuId = newId("menu");
  const node = make(
    "button.button.is-quiet",
    {
      type: "button",
      "aria-label": "More options",
      "aria-haspopup": "menu",
      "aria-expanded": "false",
      "aria-controls": menuId,
      data: { key: keyOf(item, surface) },
    },
    icon("more"),
  );
  const rows = item.options.map((option) => {
    const url = option.url && isLink(option.url) ? option.url : null;
    const shown = url
      ? { role: "menuitem", href: url, target: "_blank", rel: "noopener noreferrer" }
      : { role: "menuitem", type: "button" };
    const row = make(url ? "a.option" : "button.option", shown, plainText(option.text));
    row.addEventListener("click", () => {
      toggle(false);
      perform(node, item, block, surface, option.value);
    });
    return row;
  });
  const menu = make(
    "div.menu",
    { id: menuId, role: "menu", "aria-label": "More options", popover: "manual" },
    rows,
  );
  const place = floating(node, menu, { narrow: true });

  function toggle(open) {
    node.setAttribute("aria-expanded", String(open));
    if (!open) {
      place.hide();
      node.focus();
      return;
    }
    place.show();
    rows[0]?.focus();
  }

  node.addEventListener("click", () => toggle(node.getAttribute("aria-expanded") !== "true"));
  menu.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      const at = rows.indexOf(document.activeElement) + step;
      rows[(at + rows.length) % rows.length].focus();
    } else if (event.key === "Escape" || event.key === "Tab") {
      event.preventDefault();
      event.stopPropagation();
      toggle(false);
    }
  });
  menu.addEventListener("focusout", (event) => {
    if (!menu.contains(event.relatedTarget) && event.relatedTarget !== node) {
      node.setAttribute("aria-expanded", "false");
      place.hide();
    }
  });
  return make("span.overflow", {}, node, menu);
}

/** Return a menu, radio buttons or checkboxes that tell the app of each choice. */
function chooser(item, block, surface) {
  const made = control(item, {
    id: newId("element"),
    state: surface.stateOf?.(block.block_id, item) ?? initialState(item),
    isOptional: false,
    dispatches: true,
    labels: { "aria-label": plainText(item.placeholder) || plainText(block.text) || "Choose" },
    options: (query) =>
      surface.options({ block_id: block.block_id, action_id: item.action_id, query }),
    onChange(isSettled) {
      if (isSettled) perform(made.node, item, block, surface, valueIn(made.state()));
    },
  });
  made.input.dataset.key = keyOf(item, surface);
  surface.keep?.(block.block_id, item, made);
  return made.isGroup
    ? make("div", { role: "group", "aria-label": "Choices" }, made.node)
    : made.node;
}

/** Return an element of an actions block, or one beside a section. */
export function element(item, block, surface) {
  if (item.type === "button") return button(item, block, surface);
  if (item.type === "overflow") return overflow(item, block, surface);
  if (isControl(item)) return chooser(item, block, surface);
  return cannotDraw(item.type);
}
