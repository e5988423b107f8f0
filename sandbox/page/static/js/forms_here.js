// Which open forms are shown in this tab: those that came of what was done in it.

const KEPT = "forms";
// An app may open a form for three seconds after an action, and then the news has to arrive:
// https://docs.slack.dev/interactivity/handling-user-interaction
const OPENING_MILLISECONDS = 5_000;

/** The roots of all stacks of forms that this tab has heard of, and of those that are shown in it. */
const known = new Set();
const here = new Set(JSON.parse(sessionStorage.getItem(KEPT) ?? "[]"));
let running = 0;
let actedAt = -Infinity;

/** Await an action in this tab: a form that opens meanwhile or soon after is its own. */
export async function acting(action) {
  running += 1;
  try {
    return await action;
  } finally {
    running -= 1;
    actedAt = performance.now();
  }
}

/** Return those of a person's open forms that are shown in this tab. */
export function formsHere(views) {
  const isOpening = running > 0 || performance.now() - actedAt < OPENING_MILLISECONDS;
  for (const { root_view_id: root } of views) {
    if (isOpening && !known.has(root)) here.add(root);
    known.add(root);
  }
  sessionStorage.setItem(KEPT, JSON.stringify([...here]));
  return views.filter((view) => here.has(view.root_view_id));
}
