// Script of all pages. Pages work without it, except for live tails. Text of the cluster is only ever set as
// textContent, so nothing in a record can become an element.

const PAUSE_MS = 3000;

function setUpTheme() {
  const button = document.getElementById("theme");
  if (!button) return;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const current = () => document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  const show = () => { button.textContent = current() === "dark" ? "Light" : "Dark"; };
  button.hidden = false;
  show();
  button.addEventListener("click", () => {
    const chosen = current() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    const secure = location.protocol === "https:" ? "; secure" : "";
    document.cookie = `ottla_theme=${chosen}; path=/; max-age=31536000; samesite=strict${secure}`;
    show();
  });
}

// Sizes of topics or data directories, and lags of groups, in the visible rows.
async function fillSizes() {
  const table = document.querySelector("[data-sizes]");
  if (!table) return;
  const cells = [...table.querySelectorAll("[data-size-of]")];
  const query = new URLSearchParams(cells.map((cell) => ["name", cell.dataset.sizeOf]));
  if (!cells.length) return;
  const response = await fetch(`${table.dataset.sizes}?${query}`);
  if (!response.ok || response.redirected) return;
  const sizes = await response.json();
  for (const cell of cells) cell.textContent = sizes[cell.dataset.sizeOf] ?? "-";
}

function showTimes(isLocal) {
  for (const element of document.querySelectorAll("time[data-ms]")) {
    element.dataset.utc ??= element.textContent;
    const moment = new Date(Number(element.dataset.ms));
    element.textContent = isLocal && !Number.isNaN(moment.getTime()) ? localText(moment) : element.dataset.utc;
  }
}

function localText(moment) {
  const shifted = new Date(moment.getTime() - moment.getTimezoneOffset() * 60000);
  return shifted.toISOString().replace("T", " ").slice(0, 23);
}

function setUpTimes() {
  const box = document.getElementById("local-times");
  if (!box) return;
  box.closest("label").hidden = false;
  box.checked = localStorage.getItem("ottla-local-times") === "1";
  box.addEventListener("change", () => {
    localStorage.setItem("ottla-local-times", box.checked ? "1" : "0");
    showTimes(box.checked);
  });
  showTimes(box.checked);
}

function setUpReload() {
  const element = document.querySelector("[data-reload]");
  if (element) setTimeout(() => location.reload(), Number(element.dataset.reload) * 1000);
}

function text(tag, content, className) {
  const element = document.createElement(tag);
  element.textContent = content;
  if (className) element.className = className;
  return element;
}

// Live tail: a bounded number of rows, newest first.
function setUpTail() {
  const area = document.querySelector("[data-tail]");
  if (!area) return;
  const body = area.querySelector("tbody");
  const state = document.getElementById("tail-state");
  const button = document.getElementById("tail-stop");
  const most = Number(area.dataset.rows);
  const source = new EventSource(area.dataset.tail);
  const stop = (reason) => {
    source.close();
    state.textContent = reason;
    button.hidden = true;
  };
  button.hidden = false;
  button.addEventListener("click", () => stop("Stopped."));
  window.addEventListener("pagehide", () => source.close());
  source.addEventListener("records", (event) => {
    for (const record of JSON.parse(event.data)) {
      const row = document.createElement("tr");
      row.append(text("td", record.partition, "number"), text("td", record.offset, "number"), text("td", record.time));
      for (const shown of [record.key, record.value]) {
        const cell = document.createElement("td");
        cell.append(text("div", shown === null ? "null" : shown, shown === null ? "null" : "data"));
        row.append(cell);
      }
      body.prepend(row);
    }
    while (body.rows.length > most) body.lastElementChild.remove();
  });
  source.addEventListener("state", (event) => { state.textContent = JSON.parse(event.data); });
  source.addEventListener("end", (event) => stop(JSON.parse(event.data)));
  source.onerror = () => { if (source.readyState === EventSource.CLOSED) stop("The tail ended: load the page again."); };
}

// A chart of numbers that are asked for again and again, with their latest value in a table beside it.
function setUpChart() {
  const chart = document.querySelector("[data-chart]");
  if (!chart) return;
  const line = chart.querySelector("polyline");
  const values = [];
  const ask = async () => {
    if (document.hidden) return;
    const response = await fetch(chart.dataset.chart);
    if (!response.ok || response.redirected) return;
    const found = await response.json();
    values.push(found.value);
    if (values.length > 100) values.shift();
    const most = Math.max(...values);
    const shown = values.length > 1 ? values : [found.value, found.value];
    const step = 100 / (shown.length - 1);
    const point = (value, i) => `${(i * step).toFixed(2)},${(48 - (42 * value) / Math.max(1, most)).toFixed(2)}`;
    line.setAttribute("points", shown.map(point).join(" "));
    document.getElementById("chart-now").textContent = found.text;
    document.getElementById("chart-most").textContent = most.toLocaleString("en");
    document.getElementById("chart-least").textContent = Math.min(...values).toLocaleString("en");
  };
  ask();
  setInterval(ask, PAUSE_MS);
}

setUpTheme();
setUpTimes();
setUpReload();
setUpTail();
setUpChart();
fillSizes();
