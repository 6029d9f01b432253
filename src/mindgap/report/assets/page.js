"use strict";
(() => {
  const made = (tag, fields, ...children) => {
    const element = Object.assign(document.createElement(tag), fields);
    element.append(...children);
    return element;
  };

  // Light or dark.
  const brand = document.querySelector(".masthead-inner");
  if (brand && typeof theme !== "undefined") {
    const button = made("button", { className: "theme", type: "button" });
    const tell = () => { button.textContent = theme.dark ? "Light colors" : "Dark colors"; };
    button.addEventListener("click", () => theme.choose(theme.dark ? "light" : "dark"));
    addEventListener("theme", tell);
    tell();
    brand.append(button);
  }

  // A page in a notebook's frame may not use the clipboard, but it may copy what is selected.
  const copied = async (code) => {
    try { await navigator.clipboard.writeText(code.textContent); return true; } catch {
      getSelection().selectAllChildren(code);
      return document.execCommand("copy");
    }
  };
  for (const box of document.querySelectorAll(".paste")) {
    const button = made("button", { className: "copy", type: "button", textContent: "Copy" });
    button.addEventListener("click", async () => {
      button.textContent = (await copied(box.querySelector("code"))) ? "Copied" : "Press Ctrl+C";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    box.append(button);
  }

  // Tables are sorted by a click on a heading: up, down, and back to the order of the page.
  const seconds = { ms: 0.001, s: 1, min: 60, h: 3600, d: 86400 };
  const words_of = (cell) => (cell.querySelector(".name") ?? cell.firstChild ?? cell).textContent.trim() || cell.textContent.trim();
  const key_of = (cell) => {
    const text = words_of(cell).replaceAll("−", "-").replace(/[\s\u00a0\u2009\u202f]+/g, " ");
    if (!text || text === "—" || text === "-") return { missing: true, text };
    const time = text.match(/^(?:< ?)?(?:[\d.]+ (?:ms|s|min|h|d) ?)+$/);
    if (time) {
      const parts = [...text.matchAll(/([\d.]+) (ms|s|min|h|d)/g)];
      return { number: parts.reduce((sum, [, size, unit]) => sum + size * seconds[unit], text[0] === "<" ? -1e-9 : 0), text };
    }
    const found = text.match(/^[[(≤≥<>~]*\s*([-+]?)(∞|(?:\d[\d,]*)?\.?\d+(?:e[-+]?\d+)?)(?![-\w])/i);
    if (!found) return { text };
    const size = found[2] === "∞" ? Infinity : Number(found[2].replaceAll(",", ""));
    return { number: found[1] === "-" ? -size : size, text };
  };
  const words = new Intl.Collator("en", { numeric: true });
  const order = (a, b) => {
    if (a.number === undefined || b.number === undefined) {
      return (a.number === undefined) - (b.number === undefined) || words.compare(a.text, b.text);
    }
    return a.number === b.number ? words.compare(a.text, b.text) : a.number - b.number;
  };
  const sort = (table, column, way) => {
    for (const body of table.tBodies) {
      const rows = [...body.rows].filter((row) => !row.querySelector("[scope=rowgroup]"));
      const keyed = rows.map((row, place) => ({ row, place: (row.dataset.place ??= place), key: key_of(row.cells[column]) }));
      keyed.sort((a, b) => (way === "none" ? a.place - b.place
        : (a.key.missing ?? false) - (b.key.missing ?? false) || (way === "ascending" ? 1 : -1) * order(a.key, b.key) || a.place - b.place));
      body.append(...keyed.map(({ row }) => row));
    }
  };
  const next = { none: "ascending", ascending: "descending", descending: "none" };
  for (const table of document.querySelectorAll("main table")) {
    const head = [...(table.tHead?.rows[0]?.cells ?? [])];
    const rows = [...table.tBodies].map((body) => body.rows.length);
    if (!head.length || Math.max(...rows) < 3 || table.querySelector("tbody [rowspan]")) continue;
    head.forEach((cell, column) => {
      if (!cell.textContent.trim()) return;
      const button = made("button", { className: "sort", type: "button" }, ...cell.childNodes);
      button.addEventListener("click", () => {
        const way = next[cell.getAttribute("aria-sort") ?? "none"];
        for (const other of head) other.removeAttribute("aria-sort");
        if (way !== "none") cell.setAttribute("aria-sort", way);
        sort(table, column, way);
      });
      cell.append(button);
    });
  }

  // Samples are enlarged, and those behind a cell of a matrix are shown, in a dialog.
  let dialog, opener;
  const show = (label, content, from) => {
    if (!dialog) {
      const close = made("button", { className: "close", type: "button", textContent: "Close" });
      close.addEventListener("click", () => dialog.close());
      dialog = made("dialog", { id: "shown" }, close, made("div", { className: "shown" }));
      dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
      dialog.addEventListener("close", () => opener?.focus());
      document.body.append(dialog);
    }
    opener = dialog.open ? opener : from;
    dialog.setAttribute("aria-label", label);
    dialog.querySelector(".shown").replaceChildren(...content);
    if (!dialog.open) dialog.showModal();
  };
  const enlarge = (item, from) => {
    const copy = item.cloneNode(true), button = copy.querySelector("button.zoom");
    button.replaceWith(...button.childNodes);
    show(item.querySelector("img").alt, [made("div", { className: "enlarged" }, ...copy.childNodes)], from);
  };
  for (const image of document.querySelectorAll(".gallery img")) {
    const button = made("button", { className: "zoom", type: "button", title: "Enlarge" });
    image.replaceWith(button);
    button.append(image);
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button.zoom");
    if (button) enlarge(button.closest("li"), button);
  });
  document.addEventListener("cell", (event) => {
    const found = event.target.closest(".chart").querySelector(`[data-cell="${event.detail}"]`);
    if (!found) return;
    event.target.tabIndex = -1;
    show(found.querySelector("h4").textContent, [...found.cloneNode(true).childNodes], event.target);
  });

  // Paper shows what is folded, but no explanations, numbers of charts or samples of cells.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open], .how, .numbers, .behind)")];
    for (const part of folded) part.open = true;
  });
  addEventListener("afterprint", () => { for (const part of folded) part.open = false; });

  // A link into a folded part opens it.
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let part = target && target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  };
  addEventListener("hashchange", reveal);
  reveal();

  const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]));
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) links.get(target.id)?.classList.toggle("here", isIntersecting);
  }, { rootMargin: "-10% 0px -70% 0px" });
  for (const section of document.querySelectorAll("main section[id]")) watch.observe(section);
})();
