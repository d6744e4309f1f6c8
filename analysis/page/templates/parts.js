"use strict";
// The tabs of a page, and its tables, which a reader can sort.
(() => {
  const all = (selector, within) => [...(within || document).querySelectorAll(selector)];
  document.documentElement.classList.add("scripted");

  // Tabs: arrow keys move between them, as in the ARIA practices.
  function tabs() {
    const list = document.querySelector("[role=tablist]");
    if (!list) return;
    const buttons = all("[role=tab]", list);
    const panel = button => document.getElementById(button.getAttribute("aria-controls"));
    function show(chosen, focus) {
      for (const button of buttons) {
        const on = button === chosen;
        button.setAttribute("aria-selected", String(on));
        button.tabIndex = on ? 0 : -1;
        panel(button).hidden = !on;
      }
      if (focus) chosen.focus();
    }
    list.hidden = false;
    buttons.forEach((button, number) => {
      panel(button).tabIndex = 0;
      button.addEventListener("click", () => show(button));
      button.addEventListener("keydown", event => {
        const to = {ArrowRight: number + 1, ArrowLeft: number - 1, Home: 0, End: -1}[event.key];
        if (to === undefined) return;
        event.preventDefault();
        show(buttons.at(to % buttons.length), true);
      });
    });
    function follow() {
      const aim = location.hash && document.getElementById(location.hash.slice(1));
      const inside = aim && buttons.find(button => panel(button).contains(aim));
      if (!inside) return;
      show(inside);
      aim.scrollIntoView();
    }
    addEventListener("hashchange", follow);
    show(buttons[0]);
    follow();
  }

  // Sorts numbers from the largest and names from A; a second click reverses. Dashes come last.
  function sortable(table) {
    const heads = all("thead th", table);
    const body = table.tBodies[0];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const number = head.classList.contains("number");
      const before = head.getAttribute("aria-sort");
      const down = before ? before === "ascending" : number;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = row => {
        const cell = row.cells[column];
        if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
        return cell.textContent === "-" ? null : cell.textContent;
      };
      const rows = [...body.rows].map(row => [key(row), row]);
      rows.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
        return down ? -order : order;
      });
      body.append(...rows.map(([, row]) => row));
    }));
  }

  all("table.sortable").forEach(sortable);
  tabs();
})();
