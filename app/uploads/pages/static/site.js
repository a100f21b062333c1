// Improves pages that are complete without it: times of the reader's own zone, upload bars, live state.
"use strict";

document.documentElement.classList.add("js");

// -- times

function localTimes(root) {
  const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });
  const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (!Number.isNaN(at.valueOf())) {
      time.textContent = ("clock" in time.dataset ? clock : day).format(at);
      time.title = time.dateTime;
    }
  }
}

const thousands = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

function size(bytes) {
  if (bytes < 1024) return `${bytes} bytes`;
  return bytes < 1 << 20 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / 2 ** 20).toFixed(1)} MB`;
}

function about(seconds) {
  return seconds < 90 ? `about ${Math.max(1, Math.round(seconds))} s` : `about ${Math.round(seconds / 60)} min`;
}

// -- handing in: files are chosen, guessed, checked and sent one by one

function handingIn(form) {
  const input = form.querySelector("#file");
  const list = form.querySelector("#chosen");
  const title = form.querySelector("#chosen-title");
  const said = form.querySelector("#said");
  const drop = form.querySelector(".drop");
  const platform = form.querySelector("#platform");
  const upload = form.querySelector("button[value=upload]");
  const check = form.querySelector("button[value=check]");
  const files = [];
  let busy = false;
  let made = ""; // the new workspace, once the first file is in it

  function show() {
    title.hidden = files.length === 0;
    const open = files.filter((entry) => !entry.url).length;
    upload.textContent = open > 1 ? `Upload ${open} files` : "Upload";
    check.textContent = open > 1 ? `Check ${open} files only` : "Check only";
    upload.disabled = check.disabled = busy;
  }

  function note(entry, text, tone = "") {
    entry.note.textContent = text;
    entry.note.className = `file-note ${tone || "muted"}`;
  }

  function add(file) {
    if (files.length >= Number(form.dataset.most)) {
      said.textContent = `No more than ${form.dataset.most} files at a time.`;
      return;
    }
    const element = document.querySelector("#chosen-file").content.cloneNode(true).firstElementChild;
    const entry = {
      file, element, url: "", key: crypto.randomUUID ? crypto.randomUUID() : `${Date.now()}-${Math.random()}`,
      note: element.querySelector(".file-note"), select: element.querySelector("select"),
      bar: element.querySelector("progress"), result: element.querySelector(".file-result"),
    };
    element.querySelector("bdi").textContent = file.name;
    element.querySelector(".file-size").textContent = size(file.size);
    element.querySelector("label .sr").textContent = `Platform of ${file.name}`;
    for (const [name, act] of [["check", () => run(entry, "check")], ["remove", () => remove(entry)]]) {
      const button = element.querySelector(`.${name}`);
      button.setAttribute("aria-label", `${button.textContent} ${file.name}`);
      button.addEventListener("click", act);
    }
    entry.select.addEventListener("change", () => { entry.chosen = true; note(entry, ""); });
    files.push(entry);
    list.append(element);
    guess(entry);
    show();
  }

  function remove(entry) {
    files.splice(files.indexOf(entry), 1);
    entry.element.remove();
    said.textContent = `${entry.file.name} was removed.`;
    input.focus();
    show();
  }

  function tooLarge(entry) {
    const most = Number(form.dataset.bytes);
    if (entry.file.size > most) note(entry, `This file is larger than ${size(most)}: export a shorter time range.`, "bad");
    return entry.file.size > most;
  }

  async function guess(entry) {
    if (platform.value && !entry.chosen) entry.select.value = platform.value;
    if (tooLarge(entry)) return;
    const body = new FormData();
    body.append("csrf_token", form.elements.csrf_token.value);
    body.append("file", entry.file.slice(0, 65536), "beginning");
    try {
      const answer = await fetch(form.dataset.guess, { method: "POST", body, headers: { Accept: "application/json" } });
      if (!answer.ok) return;
      const found = await answer.json();
      if (entry.chosen) return; // a guess never undoes what a person has chosen meanwhile
      if (found.sentence) note(entry, found.sentence, "bad");
      else if (!found.platform) {
        if (entry.select.value) note(entry, "");
        else note(entry, "Its columns do not tell the platform: choose it.", "bad");
      } else if (!platform.value) {
        entry.select.value = found.platform;
        note(entry, `Looks like a report of ${nameOf(entry)}.`);
      } else if (found.platform !== platform.value) {
        entry.select.value = found.platform;
        note(entry, `You chose ${platform.selectedOptions[0].textContent}, but it looks like ${nameOf(entry)}. Correct it if that is wrong.`, "bad");
      }
      said.textContent = `${entry.file.name}: ${entry.note.textContent}`;
    } catch { /* the guess is a convenience; sending says what is wrong */ }
  }

  function nameOf(entry) {
    return entry.select.selectedOptions[0].textContent;
  }

  function fields(entry, action) {
    const body = new FormData(form);
    body.delete("file");
    body.delete("platform");
    body.set("platform", entry.select.value);
    body.set("action", action);
    if (made && body.get("workspace_id") === "new") body.set("workspace_id", made); // all files into one
    if (action === "upload") body.set("idempotency_key", entry.key);
    body.append("file", entry.file, entry.file.name);
    return body;
  }

  function send(entry, action) {
    return new Promise((resolve) => {
      const request = new XMLHttpRequest();
      request.open("POST", form.getAttribute("action")); // `form.action` is the button of that name
      request.setRequestHeader("Accept", action === "check" ? "text/html" : "application/json");
      if (action === "check") request.setRequestHeader("X-Part", "result");
      request.upload.addEventListener("progress", (event) => {
        if (!event.lengthComputable) return;
        entry.bar.max = event.total;
        entry.bar.value = event.loaded;
        const part = Math.floor((100 * event.loaded) / event.total);
        note(entry, event.loaded < event.total ? `Sending: ${part} %` : (action === "check" ? "Reading every row …" : "Storing …"));
      });
      request.addEventListener("loadend", () => resolve(request));
      entry.bar.hidden = false;
      entry.bar.removeAttribute("value");
      note(entry, "Sending …");
      request.send(fields(entry, action));
    });
  }

  async function run(entry, action) {
    entry.result.replaceChildren();
    if (tooLarge(entry)) return undefined; // the server would end the connection in the middle of it
    const request = await send(entry, action);
    entry.bar.hidden = true;
    if (request.status === 0) return note(entry, "The connection broke. Try again: nothing is taken twice.", "bad");
    if (action === "check" && request.status === 200) {
      note(entry, "Checked, nothing was uploaded.");
      const parsed = new DOMParser().parseFromString(request.responseText, "text/html");
      entry.result.replaceChildren(...parsed.body.children);
      const badge = entry.result.querySelector(".badge");
      said.textContent = `${entry.file.name}: ${badge ? badge.textContent : "checked"}`;
      return undefined;
    }
    return uploaded(entry, request);
  }

  function uploaded(entry, request) {
    let answer = {};
    try { answer = JSON.parse(request.responseText); } catch { /* not ours: a proxy's page */ }
    const file = (answer.files || [])[0] || {};
    if (file.url) {
      made = file.workspace_id;
      entry.url = file.url;
      entry.progress = `/v1/uploads/${file.upload_id}/progress`;
      entry.element.querySelector(".file-actions").replaceChildren();
      entry.select.disabled = true;
      const link = document.createElement("a");
      link.href = file.url;
      link.textContent = "Open";
      link.setAttribute("aria-label", `Open ${entry.file.name}`);
      entry.element.querySelector(".file-actions").append(link);
      note(entry, file.duplicate_of ? "Taken in; the same file was uploaded before." : "Taken in.", "good");
    } else {
      note(entry, file.sentence || answer.detail || `The server answered with ${request.status}. Try again in a minute.`, "bad");
    }
    said.textContent = `${entry.file.name}: ${entry.note.textContent}`;
    return undefined;
  }

  async function runAll(action) {
    const open = files.filter((entry) => !entry.url);
    busy = true;
    show();
    for (const entry of open) await run(entry, action); // one by one: the bars mean something
    busy = false;
    show();
    if (action === "upload") {
      const done = open.filter((entry) => entry.url);
      if (files.length === 1 && done.length === 1) location.assign(done[0].url);
      else done.forEach(watch);
    }
  }

  async function watch(entry) {
    for (let failures = 0; failures < 30;) {
      try {
        const found = await (await fetch(entry.progress, { headers: { Accept: "application/json" } })).json();
        const rows = found.promoted_rows ? `${thousands.format(found.promoted_rows)} rows in your data` : `${thousands.format(found.staged_rows)} rows read`;
        if (found.terminal) {
          const ends = { completed: ["Completed", "good"], partial: ["Partly completed", "bad"], failed: ["Failed: open it to see why", "bad"] };
          const [text, tone] = ends[found.status];
          const rejected = found.total_rows - found.valid_rows;
          if (found.status === "failed") note(entry, text, tone);
          else if (rejected) note(entry, `${text}, ${rows}, ${thousands.format(rejected)} rejected: open it to fix them.`, "bad");
          else note(entry, `${text}, ${rows}.`, tone);
          said.textContent = `${entry.file.name}: ${entry.note.textContent}`;
          return;
        }
        note(entry, `On its way, ${rows}.`);
        failures = 0;
      } catch { failures += 1; }
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }

  platform.addEventListener("change", () => {
    for (const entry of files) if (!entry.url) guess(entry);
  });
  input.addEventListener("change", () => {
    for (const file of input.files) add(file);
    input.value = ""; // the list below holds them, and the same file may be chosen again
  });
  form.addEventListener("submit", (event) => {
    if (files.length === 0) return; // the server says what is missing
    event.preventDefault();
    if (busy) return;
    if (files.every((entry) => entry.url)) { said.textContent = "All of these are uploaded."; return; }
    runAll(event.submitter && event.submitter.value === "check" ? "check" : "upload");
  });
  for (const name of ["dragenter", "dragover"]) {
    document.addEventListener(name, (event) => {
      if (!event.dataTransfer || !event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  for (const name of ["dragleave", "dragend", "drop"]) {
    document.addEventListener(name, (event) => {
      if (name !== "dragleave" || event.relatedTarget === null) drop.classList.remove("over");
    });
  }
  document.addEventListener("drop", (event) => {
    if (!event.dataTransfer || !event.dataTransfer.files.length) return;
    event.preventDefault();
    for (const file of event.dataTransfer.files) add(file);
  });
}

// -- one upload, live

function live(page) {
  const url = page.dataset.progress;
  const meanings = { pending: "The file is stored and waits to be read.", processing: "Every row is being read and checked.",
    staging_complete: "All rows are checked; saving begins in a moment.", promoting: "The valid rows are being saved to your data." };
  let finished = false;

  function bar(name, value, total, estimated) {
    const element = page.querySelector(`#${name}-bar`);
    if (total) { element.max = total; element.value = Math.min(value, total); } else element.removeAttribute("value");
    page.querySelector(`#${name}-text`).textContent =
      thousands.format(value) + (total ? ` of ${estimated ? "about " : ""}${thousands.format(total)}` : "");
  }

  function told(found) {
    if (found.terminal) return finish();
    const meaning = page.querySelector("#meaning");
    if (meanings[found.status] !== meaning.textContent) meaning.textContent = meanings[found.status];
    for (const step of page.querySelectorAll(".steps li")) {
      if (step.dataset.states.split(" ").includes(found.status)) step.setAttribute("aria-current", "step");
      else step.removeAttribute("aria-current");
    }
    bar("read", found.staged_rows, found.total_rows, found.estimated);
    bar("save", found.promoted_rows, found.valid_rows, false);
    if (!found.valid_rows) { page.querySelector("#save-bar").max = 1; page.querySelector("#save-bar").value = 0; }
    page.querySelector("#rate").textContent = found.rows_per_second ? `${thousands.format(found.rows_per_second)} rows a second` : "";
    page.querySelector("#left").textContent = found.seconds_left === null ? "" : `${about(found.seconds_left)} left`;
    page.querySelector("#ahead").textContent = found.ahead ? `${found.ahead} uploads before this one` : "";
    return undefined;
  }

  async function finish() {
    if (finished) return;
    finished = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = parsed.querySelector("#upload");
      document.title = parsed.title;
      page.replaceWith(fresh);
      localTimes(fresh);
      const head = fresh.querySelector(".callout h2");
      if (head) { // said aloud, and the place where reading goes on
        head.tabIndex = -1;
        head.focus({ preventScroll: true });
      }
    } catch { location.reload(); }
  }

  async function poll(seconds) {
    for (let wait = seconds; !finished;) {
      try {
        const answer = await fetch(url, { headers: { Accept: "application/json" } });
        if (answer.status === 404 || answer.status === 401) return location.reload();
        const found = await answer.json();
        if (answer.ok) told(found);
        wait = found.poll_after_seconds || 2;
      } catch { wait = Math.min(2 * wait, 15); }
      await new Promise((resolve) => setTimeout(resolve, 1000 * wait));
    }
    return undefined;
  }

  const socket = new WebSocket(url.replace(/progress$/, "events").replace(/^/, location.origin.replace(/^http/, "ws")));
  let polling = false;
  socket.addEventListener("message", (event) => {
    const found = JSON.parse(event.data);
    if (found.type === "poll") polling = poll(found.poll_after_seconds);
    else told(found);
  });
  socket.addEventListener("close", () => {
    if (!finished && !polling) polling = poll(1);
  });
}

localTimes(document);
const form = document.querySelector("#hand-in");
if (form) handingIn(form);
const page = document.querySelector("#upload[data-progress]");
if (page) live(page);
