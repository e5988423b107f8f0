// The stack of modals that a person has open: the top one stands there, those below keep what they hold.

import { warn } from "./announce.js";
import { inView } from "./api.js";
import { keepFocus, the } from "./dom.js";
import { on, state } from "./state.js";
import { viewForm } from "./view.js";

const dialog = the("#modal");
/** @type {Map<string, ReturnType<typeof viewForm>>} by view id */
let forms = new Map();
let opener = null;

function closeAll() {
  const top = state.views.at(-1);
  if (top) inView(top.id, "close", { whole_stack: true });
}

function newForm(view) {
  return viewForm(view, {
    onSubmit: (values) => inView(view.id, "submit", { values }),
    onBack: () => inView(view.id, "close", { whole_stack: false }),
    onClose: closeAll,
  });
}

function show(change) {
  if (change === "reload" && dialog.open && !state.views.length)
    warn("The sandbox was restarted, and the open form is gone.");
  const before = forms;
  forms = new Map();
  for (const view of state.views) {
    const form = before.get(view.id) ?? newForm(view);
    if (before.has(view.id)) form.update(view);
    forms.set(view.id, form);
  }
  const top = [...forms.values()].at(-1);
  if (!top) close();
  else if (!top.node.isConnected) open(top);
}

function open(top) {
  top.lieOver(state.views.at(-2));
  dialog.replaceChildren(top.node);
  dialog.setAttribute("aria-labelledby", top.titleId);
  if (!dialog.open) {
    opener = document.activeElement;
    dialog.showModal();
  }
  top.begin();
}

function close() {
  if (!dialog.open) return;
  dialog.close();
  dialog.replaceChildren();
  // The message whose button opened it may have been drawn anew meanwhile.
  const key = opener?.dataset?.key;
  const again = key && document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  const there = opener?.isConnected && opener !== document.body ? opener : again;
  (there || the("#composer textarea")).focus();
  opener = null;
}

dialog.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented) return;
  event.preventDefault();
  closeAll();
});
dialog.addEventListener("cancel", (event) => {
  if (event.target === dialog) event.preventDefault();
});
keepFocus(dialog);
on("views", show);
on("connection", (isThere) => {
  if (isThere) for (const form of forms.values()) form.answersAgain();
});
