"use strict";
(() => {
  const settings = { displaylogo: false, displayModeBar: false };
  const plots = [...document.querySelectorAll(".plot")];
  const colors = JSON.parse(document.getElementById("dark-colors")?.textContent ?? "{}");
  const is_dark = () => typeof theme !== "undefined" && theme.dark;
  // Figures are kept as text, so that every drawing begins with the colors as they were written.
  const figure_of = (plot, dark) => JSON.parse(
    document.getElementById(plot.id + "-data").textContent,
    (_, value) => (dark && typeof value === "string" ? colors[value.toLowerCase()] ?? value : value),
  );
  const is_drawn = (plot) => plot.classList.contains("js-plotly-plot");
  const fit = new ResizeObserver((entries) => {
    for (const { target } of entries) if (target.offsetWidth) Plotly.Plots.resize(target);
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
  const draw = async (plot) => {
    const { data, layout } = figure_of(plot, is_dark());
    const still = "still" in plot.dataset;
    if (still && !webgl()) return;
    if (still) plot.replaceChildren();
    const start = { ...layout.scene?.camera?.eye };
    await Plotly.newPlot(plot, data, layout, settings);
    fit.observe(plot);
    if (layout.scene) steer(plot, start);
    // What lies behind a cell of a matrix is shown by the page around the chart.
    plot.on("plotly_click", ({ points: [point] }) => {
      plot.dispatchEvent(new CustomEvent("cell", { bubbles: true, detail: `${point.y},${point.x}` }));
    });
  };
  // Sections of a text and one chart, as in page.css.
  const BESIDE = "main > section:has(> h2 + .lead + .charts:last-child > .wide:only-child:not(.samples))";
  // Paper is white and narrow: about 640 pixels between the margins, less in a half row, and less where
  // a chart stands next to its text. Bars that lie and maps need their height, and names that stand upright
  // need some; four others fit on a page.
  const paper = (plot, data, { height, scene, xaxis, yaxis }) => {
    const beside = plot.closest(BESIDE), wide = plot.closest(".chart.wide");
    const tallest = scene || data[0]?.type === "heatmap" ? 320 : yaxis?.autorange === "reversed" ? 480 : xaxis?.autotickangles ? 230 : 195;
    return { autosize: false, width: beside ? 420 : wide ? 640 : 300, height: Math.min(height, tallest) };
  };
  const redraw = (dark, size) => {
    for (const plot of plots.filter(is_drawn)) {
      const { data, layout } = figure_of(plot, dark);
      if (plot.layout.scene) layout.scene.camera = plot.layout.scene.camera;
      if (size) Object.assign(layout, size(plot, data, layout));
      Plotly.react(plot, data, layout, settings);
    }
  };
  for (const plot of plots) draw(plot);
  addEventListener("theme", () => redraw(is_dark()));
  addEventListener("beforeprint", () => redraw(false, paper));
  addEventListener("afterprint", () => redraw(is_dark()));
})();
