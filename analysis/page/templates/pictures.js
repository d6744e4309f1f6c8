"use strict";
// Draws each figure of the page and puts it into the page as the text of a data URL.
(() => {
  const WIDTH = Number(document.body.dataset.width), MOST = Number(document.body.dataset.most);
  const INK = "#1f2328", LINE = "#d0d7de", PAPER = "#ffffff";

  // Plotly draws the names of its clip paths at random; the same figure has to give the same file.
  let state = 1;
  Math.random = () => (state = (state * 48271) % 2147483647) / 2147483647;

  function paint(layout) {
    layout.paper_bgcolor = PAPER;
    layout.font.color = INK;
    layout.width = WIDTH;
    for (const key of Object.keys(layout).filter(key => /^[xy]axis\d*$/.test(key)))
      Object.assign(layout[key], {
        gridcolor: LINE, linecolor: LINE, tickcolor: LINE, zerolinecolor: LINE, showline: true,
      });
  }

  async function image(told) {
    paint(told.layout);
    const size = {width: WIDTH, height: told.layout.height};
    const drawn = await Plotly.toImage(told, {format: "svg", ...size});
    const bytes = decodeURIComponent(drawn.slice(drawn.indexOf(",") + 1)).length;
    return bytes <= MOST ? drawn : Plotly.toImage(told, {format: "png", scale: 1, ...size});
  }

  async function all() {
    for (const script of document.querySelectorAll('script[type="application/json"]')) {
      const made = document.createElement("pre");
      made.className = "made";
      made.textContent = await image(JSON.parse(script.textContent)).catch(error => `failed: ${error}`);
      document.body.append(made);
    }
  }
  all();
})();
