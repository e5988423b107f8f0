// The app's shortcuts: global ones in the composer, and those for a message in its menu.

import { warn } from "./announce.js";
import { shortcut } from "./api.js";
import { menuButton } from "./menu.js";
import { on, state } from "./state.js";

async function choose(name, message) {
  const outcome = await shortcut(name, message);
  if (!outcome.ok && !outcome.error.shown) warn(outcome.error.text);
}

const offered = (type, message) =>
  state.app.shortcuts
    .filter((each) => each.type === type)
    .map((each) => ({
      words: each.name,
      about: state.app.name,
      choose: () => choose(each.name, message),
    }));

/** Return the menu of a message, or null where the app has none. */
export function messageMenu(message) {
  if (message.is_ephemeral || !offered("message").length) return null;
  const key = `${message.channel}/${message.ts}/menu`;
  return menuButton({ label: "More actions", sign: "kebab", key }, () =>
    offered("message", message),
  );
}

/** Return the menu of global shortcuts; it is hidden where the app has none. */
export function globalMenu() {
  const node = menuButton({ label: "Shortcuts", sign: "bolt" }, () => offered("global"));
  on("snapshot", () => {
    node.hidden = !offered("global").length;
  });
  return node;
}
