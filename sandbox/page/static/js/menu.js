// A button with a menu behind it, for the mouse and for the keyboard.
//
// After https://www.w3.org/WAI/ARIA/apg/patterns/menu-button/.

import { fill, make, newId } from "./dom.js";
import { floating } from "./floating.js";
import { icon } from "./icons.js";

/**
 * Return a button that opens a menu.
 * @param {{label: string, sign: string, key?: string}} shown its name, its drawing, and a `data-key`
 * @param {() => {words: string, about?: string, choose: Function}[]} rowsNow what is offered
 */
export function menuButton({ label, sign, key }, rowsNow) {
  const menuId = newId("menu");
  const button = make(
    "button.icon-button",
    {
      type: "button",
      "aria-label": label,
      title: label,
      "aria-haspopup": "menu",
      "aria-expanded": "false",
      "aria-controls": menuId,
      data: key ? { key } : null,
    },
    icon(sign),
  );
  const menu = make("div.menu", { id: menuId, role: "menu", "aria-label": label, popover: "manual" });
  const place = floating(button, menu, { narrow: true });
  let rows = [];

  function close() {
    button.setAttribute("aria-expanded", "false");
    place.hide();
  }

  function open() {
    rows = rowsNow().map(({ words, about, choose }) =>
      make(
        "button.option",
        {
          type: "button",
          role: "menuitem",
          onclick() {
            close();
            button.focus();
            choose();
          },
        },
        make("span.option-label", {}, words),
        about && make("span.option-description", {}, about),
      ),
    );
    fill(menu, rows);
    button.setAttribute("aria-expanded", "true");
    place.show();
    rows[0]?.focus();
  }

  button.addEventListener("click", () =>
    button.getAttribute("aria-expanded") === "true" ? close() : open(),
  );
  menu.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      const at = rows.indexOf(document.activeElement) + step;
      rows[(at + rows.length) % rows.length].focus();
    } else if (event.key === "Escape" || event.key === "Tab") {
      event.preventDefault();
      event.stopPropagation();
      close();
      button.focus();
    }
  });
  menu.addEventListener("focusout", (event) => {
    if (!menu.contains(event.relatedTarget) && event.relatedTarget !== button) close();
  });
  return make("span.menu-button", {}, button, menu);
}
