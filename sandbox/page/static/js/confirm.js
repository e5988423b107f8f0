// The dialog that asks before something is done.

import { keepFocus, make, newId } from "./dom.js";
import { plainText, textObject } from "./texts.js";

/**
 * Ask, and return what the person says.
 * @param {Object} dialog a confirmation object of Block Kit
 * @returns {Promise<boolean>}
 */
export function confirmed(dialog) {
  const [titleId, textId] = [newId("confirm-title"), newId("confirm-text")];
  const deny = make("button.button", { type: "button" }, plainText(dialog.deny) || "Cancel");
  const yes = make("button.button", { type: "button" }, plainText(dialog.confirm) || "Yes");
  yes.classList.add(dialog.style === "danger" ? "is-danger" : "is-primary");
  const node = make(
    "dialog.confirm",
    {
      role: "alertdialog",
      "aria-labelledby": titleId,
      "aria-describedby": textId,
      closedby: "none",
    },
    make("h2.confirm-title", { id: titleId }, plainText(dialog.title) || "Are you sure?"),
    make("div.confirm-text", { id: textId }, dialog.text && textObject(dialog.text)),
    make("div.confirm-foot", {}, deny, yes),
  );
  const before = document.activeElement;
  document.body.append(node);
  keepFocus(node);
  node.showModal();
  deny.focus();
  return new Promise((resolve) => {
    function answer(said) {
      node.close();
      node.remove();
      before?.focus();
      resolve(said);
    }
    deny.addEventListener("click", () => answer(false));
    yes.addEventListener("click", () => answer(true));
    node.addEventListener("cancel", (event) => event.preventDefault());
    node.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      event.stopPropagation();
      answer(false);
    });
  });
}
