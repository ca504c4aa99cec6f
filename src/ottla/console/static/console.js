// Script of all pages. Pages work without it, except for live records and rates. Text of the cluster is only ever set as
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

// Values of the page that are asked for again and again while it is visible. A slow cluster is asked less often, so that
// a page is busy for at most a fifth of the time.
async function setUpFlow() {
  const note = document.querySelector("[data-flow]");
  if (!note) return;
  const charted = [];
  for (;;) {
    let pause = PAUSE_MS;
    if (!document.hidden) {
      const started = performance.now();
      const found = await askFlow(note.dataset.flow);
      if (note.textContent !== found.note) note.textContent = found.note;
      showFlow(found, charted);
      if (found.ends) return;
      pause = Math.max(PAUSE_MS, 4 * (performance.now() - started));
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

async function askFlow(url) {
  try {
    const response = await fetch(url);
    if (response.redirected) return { note: "The session has ended: load the page again.", ends: true };
    if (response.ok) return await response.json();
    if (response.status === 503) return { note: "The cluster does not respond. The page tries again by itself." };
    return { note: "The values of this page are not up to date: load it again.", ends: true };
  } catch {
    return { note: "The console does not respond. The page tries again by itself." };
  }
}

function showFlow(found, charted) {
  for (const [key, content] of Object.entries(found.cells ?? {})) {
    for (const cell of document.querySelectorAll(`[data-cell="${CSS.escape(key)}"]`)) cell.textContent = content;
  }
  for (const [name, rows] of Object.entries(found.rows ?? {})) {
    const body = document.querySelector(`[data-rows-of="${CSS.escape(name)}"]`);
    if (body) showRows(body, rows);
  }
  if (typeof found.chart === "number") drawChart(found, charted);
}

// Each row has its address, then its texts; the first text is the link. Rows are changed in place, so that the focus stays.
function showRows(body, rows) {
  const titles = [...body.parentElement.tHead.rows[0].cells];
  if (!body.querySelector("a")) body.replaceChildren();
  while (body.rows.length > rows.length) body.lastElementChild.remove();
  rows.forEach(([address, ...contents], number) => {
    const row = body.rows[number] ?? body.appendChild(newRow(titles));
    const link = row.querySelector("a");
    link.href = address;
    contents.forEach((content, i) => { (i === 0 ? link : row.cells[i]).textContent = content; });
  });
}

function newRow(titles) {
  const row = document.createElement("tr");
  row.append(...titles.map((title) => text("td", "", title.className)));
  row.cells[0].append(text("a", "", "name"));
  return row;
}

function drawChart(found, charted) {
  const line = document.querySelector("#chart polyline");
  if (!line) return;
  charted.push(found.chart);
  if (charted.length > 100) charted.shift();
  const most = Math.max(...charted);
  const shown = charted.length > 1 ? charted : [found.chart, found.chart];
  const step = 100 / (shown.length - 1);
  const point = (value, i) => `${(i * step).toFixed(2)},${(48 - (42 * value) / Math.max(1, most)).toFixed(2)}`;
  line.setAttribute("points", shown.map(point).join(" "));
  const rounded = (value) => value.toLocaleString("en", { maximumFractionDigits: 1 });
  document.getElementById("chart-now").textContent = found.text;
  document.getElementById("chart-most").textContent = rounded(most);
  document.getElementById("chart-least").textContent = rounded(Math.min(...charted));
}

// Figures of the visible rows of a list, one or several of each row, some rows at a time.
async function fillSizes() {
  const table = document.querySelector("[data-sizes]");
  if (!table) return;
  const cells = [...table.querySelectorAll("[data-size-of]")];
  const names = [...new Set(cells.map((cell) => cell.dataset.sizeOf))];
  const atOnce = Number(table.dataset.atOnce || names.length);
  for (let start = 0; start < names.length; start += atOnce) {
    const asked = new Set(names.slice(start, start + atOnce));
    const query = new URLSearchParams([...asked].map((name) => ["name", name]));
    const response = await fetch(`${table.dataset.sizes}?${query}`);
    if (!response.ok || response.redirected) return;
    const sizes = await response.json();
    for (const cell of cells) {
      if (!asked.has(cell.dataset.sizeOf)) continue;
      const found = sizes[cell.dataset.sizeOf];
      cell.textContent = (cell.dataset.part ? found?.[cell.dataset.part] : found) ?? "-";
    }
  }
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
      const place = document.createElement("td");
      const link = text("a", record.offset);
      link.href = record.url;
      place.className = "number";
      place.append(link);
      row.append(text("td", record.partition, "number"), place, text("td", record.time));
      for (const [shown, remarks] of [[record.key, record.key_remarks], [record.value, record.value_remarks]]) {
        const cell = document.createElement("td");
        cell.append(text("div", shown === null ? "null" : shown, shown === null ? "null" : "data"));
        for (const remark of remarks) cell.append(text("small", remark), " ");
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

setUpTheme();
setUpTimes();
setUpReload();
setUpTail();
setUpFlow();
fillSizes();
