// Updates the page and handles keys. The server sends an event when something has changed; the page is then fetched and its <main>
// replaced. Without the event stream the page polls, less often while the server does not answer. A page for which the server must read
// many jobs is "slow": it is fetched every 15 s. Nothing updates while the page is hidden, a form has the focus, text or a row is selected,
// or a fold of advice is open.
const { base, live, task } = document.body.dataset;
const least = 2000, most = 60000, slow = 15000;
const state = document.getElementById("state");
let stream = null, timer = 0, pause = least, asked = 0, isAsking = false, isDue = false;

const isTyping = () => !!document.activeElement && !!document.activeElement.closest("main form");
const isHolding = () => !!document.querySelector("main .pop[open], main tbody input:checked");
const isBusy = () => document.hidden || isTyping() || isHolding() || String(document.getSelection()) !== "";

// After an update, the focused element is found again by its address or label.
const mark = (element) => element && element !== document.body && (element.getAttribute("href") || element.getAttribute("aria-label"));
// If several match, it is found by its position from the end, since new rows come first.
const alike = (main, wanted) => [...main.querySelectorAll("[href],[aria-label]")].filter((one) => mark(one) === wanted).reverse();
// Fields that were changed and not submitted yet.
const isTyped = (one) => one.options ? [...one.options].some((option) => option.selected !== option.defaultSelected) : one.value !== one.defaultValue;
const typed = (main) => [...main.querySelectorAll("form input:not([type=hidden]), form select")].filter(isTyped);

function replace(there) {
  const here = document.querySelector("main");
  if (there.innerHTML === here.innerHTML) return;
  const focused = here.contains(document.activeElement) ? mark(document.activeElement) : null;
  const nth = focused ? alike(here, focused).indexOf(document.activeElement) : 0;
  const kept = typed(here);
  const scrolled = ".table, .graph";
  const aside = [...here.querySelectorAll(scrolled)].map((one) => one.scrollLeft);
  const open = [...here.querySelectorAll("details")].map((one) => one.open);
  here.replaceWith(there);
  there.querySelectorAll(scrolled).forEach((one, at) => { one.scrollLeft = aside[at] || 0; });
  const folds = there.querySelectorAll("details");
  if (folds.length === open.length) folds.forEach((one, at) => { one.open = open[at]; });
  for (const { name, value } of kept) {
    const field = there.querySelector(`form [name="${CSS.escape(name)}"]:not([type=hidden])`);
    if (field) field.value = value;
  }
  const again = focused && (alike(there, focused)[nth] || alike(there, focused).pop());
  if (again) again.focus({ preventScroll: true });
}

async function ask() {
  if (isBusy()) told("not updated while you work on it", "");
  if (isAsking || isBusy()) { isDue = true; return; }
  isAsking = true; isDue = false; asked = Date.now();
  try {
    const answer = await fetch(location.href, { redirect: "manual" });
    if (answer.type === "opaqueredirect") { location.reload(); return; }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!answer.ok) throw new Error(String(answer.status));
    const there = page.querySelector("main");
    if (there && !isBusy()) replace(there);
    // The page of an action that has ended does not update again.
    if (page.body.dataset.live === "no") document.body.dataset.live = "no";
    told("Live", "on"); pause = least;
  } catch {
    told("out of date: the server does not answer", "bad"); pause = Math.min(2 * pause, most);
  } finally {
    isAsking = false;
  }
}

function told(text, tone) { if (state.textContent !== text) state.textContent = text; state.className = tone; }

const concerns = (change) => live !== "slow" && change.all || live === "all" || (live === "workers" && change.workers) || (live === "task" && change.tasks.includes(task));

function listen() {
  if (stream || live === "each" || document.hidden) return;
  stream = new EventSource(`${base}/live`);
  stream.onopen = () => { if (!state.textContent) told("Live", "on"); };
  stream.onmessage = (event) => {
    const change = JSON.parse(event.data);
    if (change.away) told("out of date: Redis does not answer", "bad");
    else if (concerns(change) || state.className === "bad") ask();
  };
  // A browser reconnects by itself, except after a response that is not a stream.
  stream.onerror = () => { if (stream && stream.readyState === EventSource.CLOSED) { stream = null; } };
}

// With a stream, this updates relative times, and repeats an update that was due while the page was busy.
function tick() {
  if (document.body.dataset.live === "no") return;
  const isHeard = stream && stream.readyState === EventSource.OPEN;
  const wait = isHeard || live === "slow" ? Math.max(slow, pause) : live === "each" ? 1000 : pause;
  if (isDue || Date.now() - asked >= wait) ask();
  if (!stream) listen();
  timer = setTimeout(tick, 1000);
}

if (live !== "no") {
  asked = Date.now();
  listen();
  timer = setTimeout(tick, 1000);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { if (stream) { stream.close(); stream = null; } }
    else { listen(); ask(); }
  });
}

// Copying, and folds of advice: one is open at a time.
document.documentElement.classList.add("js");
const close = (but) => document.querySelectorAll(".pop[open]").forEach((one) => { if (one !== but) one.open = false; });
document.addEventListener("click", async (event) => {
  close(event.target.closest(".pop"));
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = button.dataset.copy || button.closest(".card").querySelector("pre").textContent;
  try { await navigator.clipboard.writeText(text); button.classList.add("done"); } catch { /* the browser does not allow it */ }
});

// The setting of the time zone begins with that of the browser.
const zone = document.getElementById("zone");
if (zone && !zone.value) zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone || "";

// Keys: rows, the find box, the filter, the next page, and the pages of the navigation.
function move(step) {
  const rows = [...document.querySelectorAll("main a.row")];
  const at = rows.indexOf(document.activeElement);
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1)];
  if (next) next.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const inField = event.target.closest("input:not([type=checkbox]), textarea");
  if (event.key === "Escape") { close(null); if (inField) inField.blur(); return; }
  if (inField) return;
  const go = (where) => { if (where) { event.preventDefault(); where.click(); } };
  const fill = (field) => {
    if (!field) return;
    event.preventDefault();
    const fold = field.closest("details");
    if (fold) fold.open = true;
    field.focus();
  };
  if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "x") go(event.target.closest("tr") && event.target.closest("tr").querySelector("[name=pick]"));
  else if (event.key === "n") go(document.querySelector("main a[rel=next]"));
  else if (event.key === "/") fill(document.getElementById("find"));
  else if (event.key === "i") fill(document.querySelector("main input[form], main form[method=get] input:not([type=hidden])"));
  else if (/^[a-z]$/.test(event.key)) go(document.querySelector(`header [data-key="${event.key}"]`));
});
