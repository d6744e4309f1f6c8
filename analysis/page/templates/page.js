"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within) => [...(within || document).querySelectorAll(selector)];
  const drawn = [];
  const piles = new Map();

  // The page's colours for text, axes and grid, which figures do not set.
  function colours(layout) {
    const style = getComputedStyle(root);
    const of = name => style.getPropertyValue(name).trim();
    const found = {
      "font.color": of("--ink"), "hoverlabel.bgcolor": of("--paper"),
      "hoverlabel.bordercolor": of("--line"), "hoverlabel.font.color": of("--ink"),
    };
    for (const axis of Object.keys(layout).filter(key => /^[xy]axis\d*$/.test(key))) {
      for (const part of ["gridcolor", "linecolor", "tickcolor", "zerolinecolor"])
        found[`${axis}.${part}`] = of("--line");
      found[`${axis}.showline`] = true;
    }
    return found;
  }
  function paint(layout) {
    for (const [path, value] of Object.entries(colours(layout))) {
      const steps = path.split("."), last = steps.pop();
      let at = layout;
      for (const step of steps) at = at[step] = at[step] || {};
      at[last] = value;
    }
  }
  function recolour() {
    for (const place of drawn) Plotly.relayout(place, colours(place.layout));
  }

  // Splits a long name into two lines. Names are escaped, so the added tag is the only one.
  const LONG = 16;
  function folded(name) {
    if (name.length <= LONG) return name;
    const middle = name.length / 2;
    const spaces = [...name.matchAll(/ /g)].map(found => found.index);
    spaces.sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle));
    return spaces.length ? `${name.slice(0, spaces[0])}<br>${name.slice(spaces[0] + 1)}` : name;
  }

  // The names along an axis that plotly would take from the data, as they are.
  function named(data, axis) {
    const own = data.filter(one => (one.yaxis || "y") === axis.replace("axis", ""));
    const names = own.flatMap(one => one.type === "violin" ? one.name : one.y || []);
    return [...new Set(names)].filter(name => typeof name === "string");
  }

  const NARROW_PX = 700;
  const isNarrow = () => innerWidth < NARROW_PX;

  // On a narrow screen, folds the names and titles of axes, and makes room for a legend with one
  // line per entry.
  const SMALL = {size: 10}, LINE_PX = 16;
  function narrow(told) {
    if (!isNarrow()) return;
    const {margin, height} = told.layout;
    let long = false;
    for (const key of Object.keys(told.layout)) {
      const axis = told.layout[key];
      if (/^xaxis\d*$/.test(key)) {
        if (axis.type === "log") axis.nticks = 4;
        if (axis.ticktext) axis.tickfont = SMALL;
        if (!axis.title || !axis.title.text) continue;
        const title = folded(axis.title.text);
        if (title !== axis.title.text) told.layout.height += LINE_PX;
        axis.title.text = title;
      }
      if (!/^yaxis\d*$/.test(key)) continue;
      const names = axis.ticktext ? [] : named(told.data, key);
      if (names.length) Object.assign(axis, {tickvals: names, ticktext: names});
      if (!axis.ticktext) continue;
      long = long || axis.ticktext.some(name => name.length > LONG);
      axis.ticktext = axis.ticktext.map(folded);
      axis.tickfont = SMALL;
    }
    if (long) told.layout.height += 0.4 * (height - margin.t - margin.b);
    if (told.layout.showlegend === false) return;
    const lines = told.data.filter(one => one.name && one.showlegend !== false).length;
    const more = Math.max(0, 20 * lines - 40);
    margin.t += more;
    told.layout.height += more;
  }

  // Names in figures are escaped, as plotly needs them; this reverses it.
  const entities = {"&lt;": "<", "&gt;": ">", "&amp;": "&"};
  const bare = name => name.replace(/&(lt|gt|amp);/g, found => entities[found]);

  function swatch(one) {
    const made = document.createElement("span");
    const marker = one.marker || {};
    const colour = one.fillcolor || (one.line && one.line.color) || marker.color || "";
    made.className = "swatch";
    if (one.fill || one.type === "bar") {
      made.style.background = colour;
      if (marker.pattern && marker.pattern.shape)
        made.style.backgroundImage = "repeating-linear-gradient(135deg, rgba(0,0,0,.45) 0 1px, transparent 1px 4px)";
    } else if (one.mode === "markers" && marker.symbol === "line-ew") {
      made.classList.add("bar");
      made.style.background = marker.line.color;
    } else if (one.mode === "markers") {
      made.classList.add("dot");
      made.style.background = colour;
    } else {
      made.classList.add("line");
      made.style.borderTopColor = colour;
      const dash = one.line && one.line.dash;
      made.style.borderTopStyle = !dash || dash === "solid" ? "solid" : /^dot$/.test(dash) ? "dotted" : "dashed";
    }
    return made;
  }

  // Stacks the visible areas again, from the last series, at the bottom, upwards.
  function pile(place, number, shown) {
    const values = piles.get(place);
    const visible = place.data.map((one, at) => at === number ? shown : one.visible !== false);
    const tops = new Array(values.length);
    let below = new Float32Array(values[0].length);
    for (let at = values.length - 1; at >= 0; at--) {
      if (visible[at]) below = below.map((top, bin) => top + values[at][bin]);
      tops[at] = below;
    }
    Plotly.restyle(place, {y: tops, visible}, tops.map((_, at) => at));
  }

  // A lane's legend is part of the page, so it wraps, works with the keyboard, and is printed.
  function legend(place, told) {
    const piled = told.layout.meta && told.layout.meta.piled;
    const box = place.closest(".lane").querySelector(".legend");
    box.textContent = "";
    told.layout.showlegend = false;
    if (told.layout.margin.t === 26) {
      told.layout.margin.t = 6;
      told.layout.height -= 20;
    }
    told.data.forEach((one, number) => {
      if (!one.name || one.showlegend === false) return;
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.append(swatch(one), bare(one.name));
      button.addEventListener("click", () => {
        const shown = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(shown));
        if (piled) pile(place, number, shown);
        else Plotly.restyle(place, {visible: shown}, [number]);
      });
      if (piled) box.prepend(button);
      else box.append(button);
    });
  }

  // Leaves out the texts of a heat map's cells if the longest is wider than a cell.
  const DIGIT_PX = 7;
  function fit(place) {
    source(place).data.forEach((one, number) => {
      if (one.type !== "heatmap" || !one.texttemplate) return;
      const room = place._fullLayout.xaxis._length / one.x.length;
      const longest = Math.max(...one.text.flat().map(words => words.length));
      const texttemplate = room < DIGIT_PX * longest ? "" : one.texttemplate;
      if (place._fullData[number].texttemplate !== texttemplate)
        Plotly.restyle(place, {texttemplate}, [number]);
    });
  }

  // A figure as the page tells it.
  const sources = new Map();
  function source(place) {
    if (!sources.has(place)) sources.set(place, place.querySelector("script").textContent);
    return JSON.parse(sources.get(place));
  }

  const coarse = matchMedia("(pointer: coarse)").matches;
  function draw(place) {
    const told = source(place);
    const lane = place.closest(".lane");
    if (lane) {
      legend(place, told);
      if (isNarrow()) {
        told.layout.margin.l = 62;
        told.layout.margin.r = 6;
        told.layout.xaxis.nticks = 5;
      }
      // On touch screens a drag scrolls the page; buttons zoom.
      if (coarse) told.layout.dragmode = false;
    } else narrow(told);
    paint(told.layout);
    place.textContent = "";
    Plotly.newPlot(place, told.data, told.layout, {
      displayModeBar: false, showTips: false, doubleClickDelay: 400, doubleClick: lane ? false : "reset+autosize",
    });
    drawn.push(place);
    fit(place);
    if (told.layout.meta && told.layout.meta.piled)
      piles.set(place, place._fullData.map(one => Float32Array.from(one.customdata)));
    if (lane && timeline) timeline.added(place);
  }

  // A lane that is drawn again keeps hidden the series that a reader has hidden.
  function again(place) {
    const shown = pressed => all(`.legend [aria-pressed="${pressed}"]`, place.closest(".lane"));
    const hidden = place.closest(".lane") ? shown("false").map(one => one.textContent) : [];
    Plotly.purge(place);
    attempt(place);
    for (const name of hidden) shown("true").find(one => one.textContent === name).click();
  }

  // Figures have the width of the window. Whether it is narrow decides their layout, too.
  const SETTLED_MS = 100;
  let narrowly = isNarrow(), settling;
  function resize() {
    if (root.dataset.print !== undefined) return;
    if (isNarrow() !== narrowly) {
      narrowly = isNarrow();
      drawn.splice(0).forEach(again);
      return;
    }
    for (const place of drawn)
      if (place.offsetParent) Plotly.Plots.resize(place).then(() => fit(place));
  }
  addEventListener("resize", () => {
    clearTimeout(settling);
    settling = setTimeout(resize, SETTLED_MS);
  });

  // A figure that cannot be drawn says so; the others are drawn.
  function attempt(place) {
    try {
      draw(place);
    } catch (error) {
      console.error(error);
      place.textContent = "This figure could not be drawn.";
      place.classList.remove("js-plotly-plot");
    }
  }

  // All lanes show the same interval of time.
  function makeTimeline() {
    const box = document.querySelector(".lanes");
    if (!box) return null;
    const end = Number(box.dataset.end);
    const places = [];
    const bar = document.getElementById("zoom");
    const from = document.getElementById("zoom-from"), to = document.getElementById("zoom-to");
    const at = document.getElementById("zoom-at"), cursor = box.querySelector(".cursor");
    let range = [0, end];
    const shown = value => String(Number(value.toPrecision(6)));
    function zoom(a, b) {
      const least = end / 1e7;
      let low = Math.min(a, b), high = Math.max(a, b);
      if (!(high - low >= least)) high = low + least;
      if (high - low > end) [low, high] = [0, end];
      if (low < 0) [low, high] = [0, high - low];
      if (high > end) [low, high] = [low - (high - end), end];
      range = [Math.max(0, low), high];
      from.value = shown(range[0]);
      to.value = shown(range[1]);
      for (const place of places) apply(place);
    }
    function apply(place) {
      const now = place.layout.xaxis.range;
      if (now[0] !== range[0] || now[1] !== range[1]) Plotly.relayout(place, {"xaxis.range": [...range]});
    }
    function by(what) {
      const [a, b] = range, quarter = (b - a) / 4;
      if (what === "in") zoom(a + quarter, b - quarter);
      if (what === "out") zoom(a - 2 * quarter, b + 2 * quarter);
      if (what === "left") zoom(a - quarter, b - quarter);
      if (what === "right") zoom(a + quarter, b + quarter);
      if (what === "all") zoom(0, end);
    }
    function added(place) {
      if (!places.includes(place)) places.push(place);
      apply(place);
      place.on("plotly_relayout", change => {
        const a = change["xaxis.range[0]"], b = change["xaxis.range[1]"];
        if (a !== undefined && b !== undefined) zoom(a, b);
      });
      place.on("plotly_doubleclick", () => zoom(0, end));
    }
    for (const button of all("[data-zoom]", bar)) button.addEventListener("click", () => by(button.dataset.zoom));
    for (const input of [from, to]) {
      input.max = end;
      input.addEventListener("change", () => {
        const a = Number(from.value), b = Number(to.value);
        if (Number.isFinite(a) && Number.isFinite(b)) zoom(a, b);
      });
    }
    bar.addEventListener("keydown", event => {
      const what = {"+": "in", "-": "out", "0": "all"}[event.key];
      if (what && event.target.tagName !== "INPUT") by(what);
    });
    for (const choice of all("[data-lane]")) {
      choice.addEventListener("change", () => {
        const lane = document.getElementById(choice.dataset.lane);
        lane.hidden = !choice.checked;
        const place = lane.querySelector(".js-plotly-plot");
        if (choice.checked && place) Plotly.Plots.resize(place);
      });
    }
    box.addEventListener("mousemove", event => {
      const place = places[0];
      if (!place) return;
      const outer = box.getBoundingClientRect(), inner = place.getBoundingClientRect();
      const margin = place.layout.margin, wide = inner.width - margin.l - margin.r;
      const x = event.clientX - inner.left - margin.l;
      cursor.hidden = x < 0 || x > wide;
      at.textContent = cursor.hidden ? "" : `at ${shown(range[0] + x / wide * (range[1] - range[0]))} s`;
      cursor.style.left = `${event.clientX - outer.left}px`;
    });
    box.addEventListener("mouseleave", () => { cursor.hidden = true; at.textContent = ""; });
    bar.hidden = false;
    zoom(0, end);
    return {added, zoom, range: () => range};
  }

  // For printing, figures have the width of the paper and dark colours on white.
  const PAPER_PX = 700;
  addEventListener("beforeprint", () => {
    root.dataset.print = "";
    for (const more of all("details.more")) more.open = true;
    finish();
    for (const place of drawn) Plotly.relayout(place, {width: PAPER_PX, ...colours(place.layout)});
  });
  addEventListener("afterprint", () => {
    delete root.dataset.print;
    for (const place of drawn) {
      Plotly.relayout(place, {width: null, autosize: true, ...colours(place.layout)});
      Plotly.Plots.resize(place);
    }
  });

  const themes = {auto: "as set in the system", light: "light", dark: "dark"};
  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const names = Object.keys(themes);
    const next = names[(names.indexOf(root.dataset.theme || "auto") + 1) % names.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    theme.textContent = next[0].toUpperCase() + next.slice(1);
    theme.setAttribute("aria-label", `Colours: ${themes[next]}`);
    recolour();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);

  const timeline = makeTimeline();
  // Draws one figure at a time, visible ones first, so that the page stays responsive.
  const waiting = all(".figure");
  waiting.sort((a, b) => Boolean(a.closest("[hidden]")) - Boolean(b.closest("[hidden]")));
  function finish() { while (waiting.length) attempt(waiting.shift()); }
  (function next() {
    if (!waiting.length) {
      root.dataset.drawn = drawn.length;
      return;
    }
    attempt(waiting.shift());
    setTimeout(next);
  })();
})();
