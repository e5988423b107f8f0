// What stands in the place of something that this page has no drawing for: it is never left out.

import { make } from "./dom.js";

export function cannotDraw(type, tag = "div") {
  return make(`${tag}.cannot-draw`, {}, `Cannot draw this: ${type || "no type"}`);
}
