"use strict";
(() => {
  const settings = { displaylogo: false, displayModeBar: false };
  const plots = [...document.querySelectorAll(".plot")];
  const fit = new ResizeObserver((entries) => {
    for (const { target } of entries) Plotly.Plots.resize(target);
  });
  // Arrow keys turn a surface, + and - zoom, 0 goes back to where it began.
  const turns = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  const zooms = { "+": 0.9, "=": 0.9, "-": 1.1 };
  const moved = ({ x, y, z }, key) => {
    const far = Math.hypot(x, y, z) * (zooms[key] ?? 1), [round, up] = turns[key] ?? [0, 0];
    const tilt = Math.min(1.5, Math.max(-1.5, Math.asin(z / Math.hypot(x, y, z)) + up * 0.08));
    const angle = Math.atan2(y, x) + round * 0.1;
    return { x: far * Math.cos(tilt) * Math.cos(angle), y: far * Math.cos(tilt) * Math.sin(angle), z: far * Math.sin(tilt) };
  };
  const steer = (plot, start) => {
    plot.tabIndex = 0;
    plot.setAttribute("role", "application");
    plot.setAttribute("aria-label", plot.getAttribute("aria-label") + " Arrow keys turn it, plus and minus zoom, zero goes back.");
    plot.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in turns || event.key in zooms || event.key === "0")) return;
      event.preventDefault();
      const eye = event.key === "0" ? start : moved(plot.layout.scene.camera.eye, event.key);
      Plotly.relayout(plot, { "scene.camera.eye": eye });
    });
  };
  const webgl = () => {
    try { return Boolean(document.createElement("canvas").getContext("webgl")); } catch { return false; }
  };
  for (const plot of plots) {
    const { data, layout } = JSON.parse(document.getElementById(plot.id + "-data").textContent);
    const still = "still" in plot.dataset;
    if (still && !webgl()) continue;
    if (still) plot.replaceChildren();
    const start = { ...layout.scene?.camera?.eye };
    Plotly.newPlot(plot, data, layout, settings).then(() => {
      fit.observe(plot);
      if (layout.scene) steer(plot, start);
    });
  }
  // A page in a notebook's frame may not use the clipboard, but it may copy what is selected.
  const copied = async (code) => {
    try { await navigator.clipboard.writeText(code.textContent); return true; } catch {
      getSelection().selectAllChildren(code);
      return document.execCommand("copy");
    }
  };
  for (const box of document.querySelectorAll(".paste")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      button.textContent = (await copied(box.querySelector("code"))) ? "Copied" : "Press Ctrl+C";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    box.append(button);
  }
  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details")) part.open = true;
    for (const plot of plots) if (plot.classList.contains("js-plotly-plot")) Plotly.Plots.resize(plot);
  });
  const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]));
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) links.get(target.id)?.classList.toggle("here", isIntersecting);
  }, { rootMargin: "-10% 0px -70% 0px" });
  for (const section of document.querySelectorAll("main section[id]")) watch.observe(section);
})();
