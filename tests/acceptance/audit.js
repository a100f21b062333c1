// What a page keeps from people who use it otherwise. Evaluated in the page by tests/acceptance/browser.py.
window.audit = {
  names: () => {
  const wrongs = [];
  const seen = (e) => e.checkVisibility({checkVisibilityCSS: true}) && !e.closest("template");
  const name = (e) => (e.getAttribute("aria-label") || (e.getAttribute("aria-labelledby") || "").split(" ")
      .filter(Boolean).map((id) => document.getElementById(id)?.textContent || "").join(" ")
    || (e.labels ? [...e.labels].map((l) => l.textContent).join(" ") : "") || e.textContent || e.alt || "").trim();
  const say = (what, e) => wrongs.push(`${what}: ${e.outerHTML.slice(0, 120)}`);
  if (!document.documentElement.lang) wrongs.push("no language");
  if (!document.title.trim()) wrongs.push("no title");
  for (const one of ["h1", "main", "header"])
    if ([...document.querySelectorAll(one)].filter(seen).length !== 1) wrongs.push(`not one ${one}`);
  let level = 0;
  for (const h of [...document.querySelectorAll("h1,h2,h3,h4,h5,h6")].filter(seen)) {
    const now = Number(h.tagName[1]);
    if (now > level + 1) say("a heading is left out", h);
    if (!h.textContent.trim()) say("empty heading", h);
    level = now;
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of ids.filter((id, at) => ids.indexOf(id) !== at)) wrongs.push(`the id ${id} stands twice`);
  for (const e of document.querySelectorAll("[aria-labelledby],[aria-describedby]"))
    for (const id of `${e.getAttribute("aria-labelledby") || ""} ${e.getAttribute("aria-describedby") || ""}`.split(" ").filter(Boolean))
      if (!document.getElementById(id)) say("names an id that is not there", e);
  for (const e of [...document.querySelectorAll("input:not([type=hidden]),select,textarea,progress")].filter(seen))
    if (!(e.labels?.length || e.getAttribute("aria-label"))) say("no label", e);
  for (const e of [...document.querySelectorAll("a[href],button,summary,[role=region],section,nav,form[role]")].filter(seen))
    if (!name(e)) say("no name", e);
  for (const e of document.querySelectorAll("img")) if (!e.hasAttribute("alt")) say("no alt", e);
  for (const e of document.querySelectorAll("svg")) if (e.getAttribute("role") !== "img" || !name(e)) say("a drawing without a name", e);
  for (const t of document.querySelectorAll("table")) {
    if (!t.caption) say("no caption", t);
    for (const th of t.querySelectorAll("th")) if (!th.scope) say("no scope", th);
  }
  for (const e of document.querySelectorAll("*")) {
    if (e.hasAttribute("style") && e.getAttribute("style")) say("style within the page", e);
    for (const a of e.attributes) if (a.name.startsWith("on")) say("script within the page", e);
  }
  for (const e of document.querySelectorAll(".scroll")) {
    const scrolls = e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight;
    if (scrolls && e.tabIndex !== 0) say("scrolls, and not by keyboard", e);
  }
  return wrongs;
},

  contrast: () => {
  const parse = (text) => { const c = text.match(/[\d.]+/g).map(Number); return c.length > 3 ? c : [...c, 1]; };
  const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0.99) return c; } return [255, 255, 255, 1]; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const wrongs = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let count = 0;
  for (let node; (node = walk.nextNode());) {
    const e = node.parentElement;
    if (!node.data.trim() || e.closest("template,svg,script,noscript,option") || !e.checkVisibility({checkVisibilityCSS: true})) continue;
    const s = getComputedStyle(e), px = parseFloat(s.fontSize), big = px >= 24 || (px >= 18.66 && Number(s.fontWeight) >= 700);
    if (px === 0) continue;
    count += 1;
    const found = ratio(parse(s.color), behind(e));
    if (found < (big ? 3 : 4.5)) wrongs.add(`${found.toFixed(2)}: ${node.data.trim().slice(0, 40)} (${e.tagName}.${e.className})`);
  }
  for (const e of document.querySelectorAll("input:not([type=hidden]):not([type=file]),select,button,.bar,.dot")) {
    if (!e.checkVisibility() || e.closest("template")) continue;
    const s = getComputedStyle(e), fill = e.matches(".bar") ? s.fill : e.matches(".dot") ? s.backgroundColor : s.borderTopColor;
    const found = ratio(parse(fill), behind(e.parentElement));
    if (found < 3) wrongs.add(`${found.toFixed(2)}: edge of ${e.tagName}.${e.className.baseVal ?? e.className}`);
  }
  if (count < 10) wrongs.add(`only ${count} texts were looked at`);
  return [...wrongs];
},

  focus: () => {
  const s = getComputedStyle(document.activeElement);
  return {tag: document.activeElement.tagName, text: (document.activeElement.textContent || document.activeElement.id).trim().slice(0, 40),
          seen: s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2};
},
};
