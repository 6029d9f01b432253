"use strict";
(() => {
  const settings = { displaylogo: false, displayModeBar: false };
  const plots = [...document.querySelectorAll(".plot")];
  const fit = new ResizeObserver((entries) => {
    for (const { target } of entries) Plotly.Plots.resize(target);
  });
  for (const plot of plots) {
    const { data, layout } = JSON.parse(document.getElementById(plot.id + "-data").textContent);
    Plotly.newPlot(plot, data, layout, settings).then(() => fit.observe(plot));
  }
  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details")) part.open = true;
    for (const plot of plots) Plotly.Plots.resize(plot);
  });
  const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]));
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) links.get(target.id)?.classList.toggle("here", isIntersecting);
  }, { rootMargin: "-10% 0px -70% 0px" });
  for (const section of document.querySelectorAll("main section[id]")) watch.observe(section);
})();
