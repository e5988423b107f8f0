// Keeps a popup beside what it belongs to, above everything else, while the page scrolls under it.

const GAP = 4;
const TALLEST = 280;

/**
 * Return how to show and hide `popup`, an element with the `popover` attribute, at `anchor`.
 * @param {HTMLElement} anchor
 * @param {HTMLElement} popup
 * @param {{narrow?: boolean}} [wanted] narrow: as wide as its words, its right edge at the anchor's
 */
export function floating(anchor, popup, { narrow = false } = {}) {
  let watch = null;

  function place() {
    const box = anchor.getBoundingClientRect();
    const below = window.innerHeight - box.bottom - GAP * 2;
    const above = box.top - GAP * 2;
    const upwards = below < Math.min(popup.scrollHeight, TALLEST) && above > below;
    const { style } = popup;
    style.maxHeight = `${Math.min(TALLEST, upwards ? above : below)}px`;
    if (narrow) {
      style.left = "auto";
      style.right = `${document.documentElement.clientWidth - box.right}px`;
    } else {
      style.left = `${box.left}px`;
      style.width = `${box.width}px`;
    }
    style.top = upwards ? "auto" : `${box.bottom + GAP}px`;
    style.bottom = upwards ? `${window.innerHeight - box.top + GAP}px` : "auto";
  }

  return {
    show() {
      if (!popup.matches(":popover-open")) popup.showPopover();
      place();
      if (watch) return;
      watch = new AbortController();
      const { signal } = watch;
      window.addEventListener("resize", place, { signal });
      document.addEventListener("scroll", place, { capture: true, passive: true, signal });
    },
    hide() {
      watch?.abort();
      watch = null;
      if (popup.isConnected && popup.matches(":popover-open")) popup.hidePopover();
    },
  };
}
