"use strict";
// Before anything is drawn: light, dark, or as the system says. A browser may refuse to remember it.
const theme = (() => {
  const style = document.getElementById("dark"), key = "mindgap-theme", own = style.media;
  const media = { dark: "screen", light: "not all" };
  const apply = (name) => { style.media = media[name] ?? own; };
  try { apply(localStorage.getItem(key)); } catch { apply(null); }
  const changed = () => dispatchEvent(new Event("theme"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  return {
    get dark() { return matchMedia(style.media).matches; },
    choose(name) {
      apply(name);
      try { localStorage.setItem(key, name); } catch { /* for this page only */ }
      changed();
    },
  };
})();
