// The few drawings that the page needs, as lines on a grid of 20 by 20.

const PATHS = {
  menu: "M3 5h14M3 10h14M3 15h14",
  close: "M5 5l10 10M15 5L5 15",
  back: "M12 4l-6 6 6 6",
  send: "M3 10l14-6-5 13-3-5z M9 12l8-8",
  down: "M5 8l5 5 5-5",
  arrow: "M10 4v12M5 11l5 5 5-5",
  reply: "M4 4h12v9H9l-4 3v-3H4z",
  hash: "M8 3L6 17M14 3l-2 14M3.5 7.5h13M3 12.5h13",
  lock: "M5 9h10v8H5z M7 9V6.500a3 3 0 0 1 6 0V9",
  box: "M3 4h14v3H3z M4.500 7v9h11V7 M8 10h4",
  scenes: "M3 4h14v12H3z M3 8h14 M7 8v8",
  more: "M5 10h.01M10 10h.01M15 10h.01",
  bolt: "M11 2.500L4 11.500h5l-1 6 7-9h-5z",
  kebab: "M10 5v.01M10 10v.01M10 15v.01",
  file: "M5 2.500h7l3.500 3.500v11.500H5z M12 2.500V6h3.500 M7.500 10.500h5M7.500 13.500h5",
  play: "M7 4.500l9 5.500-9 5.500z",
  copy: "M7 7h9v9H7z M4 13V4h9",
  check: "M4 10.500l4 4 8-9",
  note: "M10 6v5M10 14h.01 M10 2.500a7.500 7.500 0 1 0 0 15 7.500 7.500 0 0 0 0-15z",
};
const SVG = "http://www.w3.org/2000/svg";

/** Return a drawing; it says nothing to screen readers, so what holds it needs words. */
export function icon(name) {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("viewBox", "0 0 20 20");
  drawing.setAttribute("class", "icon");
  drawing.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  drawing.append(path);
  return drawing;
}
