// Makes elements and moves focus between them: what people wrote becomes text, never markup.

/**
 * Return a new element.
 * @param {string} tag its name, with classes after dots: "p.hint.is-quiet"
 * @param {Object<string, *>} [props] attributes; functions are listeners (`onclick`), `true` gives a
 *   bare attribute, and null, undefined and false give none
 * @param {...*} children nodes, text, or lists of them; empty ones are left out
 * @returns {HTMLElement}
 */
export function make(tag, props = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const node = document.createElement(name);
  if (classes.length) node.className = classes.join(" ");
  for (const [key, value] of Object.entries(props)) set(node, key, value);
  node.append(...present(children));
  return node;
}

function set(node, key, value) {
  if (value === null || value === undefined || value === false) return;
  if (typeof value === "function") node.addEventListener(key.slice(2), value);
  else if (key === "value") node.value = value;
  else if (key === "data") Object.assign(node.dataset, value);
  else node.setAttribute(key, value === true ? "" : value);
}

function present(children) {
  return children.flat(Infinity).filter((each) => each || each === 0);
}

/** Put `children` in place of whatever is in `node`. */
export function fill(node, ...children) {
  node.replaceChildren(...present(children));
}

/** Put elements into `parent` in this order, leaving in place those that stand right already. */
export function arrange(parent, nodes) {
  const wanted = new Set(nodes);
  for (const each of [...parent.children]) if (!wanted.has(each)) each.remove();
  let next = parent.firstElementChild;
  for (const each of nodes) {
    if (each === next) next = next.nextElementSibling;
    else parent.insertBefore(each, next);
  }
}

/** Return the one element that a selector names. @returns {HTMLElement} */
export function the(selector) {
  return document.querySelector(selector);
}

/** Return whether a link may be followed: a web address, mail or telephone, and no script. */
export function isLink(url) {
  return /^(https?:\/\/|mailto:|tel:)/i.test(url);
}

/** Return a link that opens in a tab of its own, or its words alone where it may not be followed. */
export function link(url, ...words) {
  if (!isLink(url)) return make("span", {}, ...words);
  return make("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, ...words);
}

const FOCUSABLE =
  "a[href], button:not(:disabled), input:not(:disabled), textarea:not(:disabled)," +
  "select:not(:disabled), summary, [tabindex]:not([tabindex='-1'])";

/** Return what can be reached with Tab inside `node`, in order. @returns {HTMLElement[]} */
export function focusable(node) {
  return [...node.querySelectorAll(FOCUSABLE)].filter((each) => each.checkVisibility());
}

/** Let Tab go round inside `node`, for as long as focus is in it. */
export function keepFocus(node) {
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Tab") return;
    const all = focusable(node);
    const [first, last] = [all[0], all.at(-1)];
    const leaves = event.shiftKey ? first : last;
    if (all.length && (document.activeElement !== leaves || event.defaultPrevented)) return;
    event.preventDefault();
    (event.shiftKey ? last : first)?.focus();
  });
}

/** Call `act` once nothing more urgent is to do. */
export const whenIdle =
  globalThis.requestIdleCallback?.bind(globalThis) ?? ((act) => setTimeout(act, 1));

let counted = 0;

/** Return an id that no other element has. */
export function newId(word) {
  counted += 1;
  return `${word}-${counted}`;
}

/** Return a function that calls `act` once it has not been called for this many milliseconds. */
export function settled(milliseconds, act) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(act, milliseconds, ...values);
  };
}
