// The explorer's page: asks the API, shows what it says. Names are set as text, never as HTML.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) $("docs").href = `/docs${location.hash}`;
  const state = { run: null, client: null, entity: null, basket: new Map(), done: {} };

  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value != null && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child != null));
    return node;
  };

  const ask = async (path, values = {}, body) => {
    const query = new URLSearchParams(Object.entries(values).filter(([, v]) => v != null && v !== ""));
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    let reply;
    try {
      reply = await fetch(`/api/${path}?${query}`, body ? { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) } : { headers });
    } catch {
      throw new Error("The explorer does not answer. Is `fedlu explore` still running?");
    }
    const value = await reply.json().catch(() => ({ error: `the answer is not JSON (${reply.status})` }));
    if (!reply.ok) throw new Error(value.error || `refused (${reply.status})`);
    return value;
  };

  const fail = (trouble) => { $("trouble").textContent = trouble.message; $("trouble").hidden = false; };
  const well = () => { $("trouble").hidden = true; };
  // Show that something is under way; the last to be asked wins, whatever answers first.
  const turns = {};
  const into = async (id, work, show) => {
    const host = $(id), turn = (turns[id] = (turns[id] || 0) + 1);
    host.classList.add("loading");
    host.setAttribute("aria-busy", "true");
    try {
      const value = await work();
      if (turns[id] !== turn) return;
      well();
      show(host, value);
    } catch (trouble) {
      if (turns[id] === turn) fail(trouble);
    } finally {
      if (turns[id] === turn) { host.classList.remove("loading"); host.removeAttribute("aria-busy"); }
    }
  };

  // --- tabs

  const open = (name) => {
    for (const tab of document.querySelectorAll("[role=tab]")) {
      const chosen = tab.dataset.tab === name;
      tab.setAttribute("aria-selected", String(chosen));
      $(tab.dataset.tab).hidden = !chosen;
    }
    if (name === "map") showMap();
    if (name === "quality") showQuality();
    if (name === "forget") showBasket();
  };
  for (const tab of document.querySelectorAll("[role=tab]")) tab.addEventListener("click", () => open(tab.dataset.tab));

  // --- type-ahead

  const input = $("entity-name"), list = $("suggestions");
  let timer = null, at = -1, asking = 0;
  const close = () => { clearTimeout(timer); asking++; list.hidden = true; at = -1; input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant"); };
  const choose = (label) => { input.value = label; state.entity = label; close(); predict(); };
  const mark = (to) => {
    const items = [...list.children].filter((item) => item.dataset.label != null);
    if (!items.length) return;
    at = (to + items.length) % items.length;
    items.forEach((item, i) => item.setAttribute("aria-selected", String(i === at)));
    items[at].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", items[at].id);
  };
  const suggest = async () => {
    const text = input.value, turn = ++asking;
    try {
      const found = await ask("entities", { client: state.client, q: text, limit: 12 });
      if (turn !== asking || document.activeElement !== input) return;
      well();
      const marked = list.children[at]?.dataset.label; // stays marked, if it is still there
      list.replaceChildren(...found.map((each, i) => {
        const item = make("li", { role: "option", id: `option-${i}`, "aria-selected": "false" }, make("span", {}, each.label), make("span", { class: "soft degree", title: "triples that mention it" }, each.degree.toLocaleString("en")));
        item.dataset.label = each.label;
        item.addEventListener("pointerdown", (event) => { event.preventDefault(); choose(each.label); });
        return item;
      }));
      if (!found.length) list.append(make("li", { class: "soft" }, "No entity has a name like that."));
      list.hidden = false;
      at = -1;
      input.setAttribute("aria-expanded", "true");
      const again = found.findIndex((each) => each.label === marked);
      if (again >= 0) mark(again);
    } catch (trouble) { fail(trouble); }
  };
  input.addEventListener("input", () => { state.entity = null; clearTimeout(timer); timer = setTimeout(suggest, 120); });
  input.addEventListener("focus", () => { if (!input.value) suggest(); });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") { event.preventDefault(); list.hidden ? suggest() : mark(at + 1); }
    else if (event.key === "ArrowUp") { event.preventDefault(); mark(at - 1); }
    else if (event.key === "Escape") close();
    else if (event.key === "Enter" && !list.hidden && at >= 0) { event.preventDefault(); choose(list.children[at].dataset.label); }
  });

  // --- asking

  const side = () => document.querySelector("input[name=side]:checked").value;
  const tripleOf = (answer) => side() === "tail" ? { head: state.entity, relation: $("relation").value, tail: answer } : { head: answer, relation: $("relation").value, tail: state.entity };

  const predict = () => {
    state.entity = input.value.trim() || null;
    $("evidence").replaceChildren();
    if (!state.entity) { $("answers").replaceChildren(make("p", { class: "empty" }, "Choose an entity and a relation to see what the run predicts.")); return; }
    const values = { client: state.client, relation: $("relation").value, top: 10, new_only: $("new-only").checked };
    values[side() === "tail" ? "head" : "tail"] = state.entity;
    into("answers", () => ask("predict", values), showAnswers);
    showNeighbours(state.entity);
  };

  const showAnswers = (host, views) => {
    const cards = Object.entries(views).map(([view, answers]) => {
      const scores = answers.map((each) => each.score), low = Math.min(...scores), span = Math.max(...scores) - low || 1;
      const items = answers.map((each) => {
        const bar = make("div", { class: "share", "aria-hidden": "true" });
        bar.style.width = `${8 + 92 * (each.score - low) / span}%`;
        return make("li", {},
          make("span", { class: "soft" }, `${each.rank}`),
          make("button", { class: "link", type: "button", title: "why?", onclick: () => why(each.label) }, each.label),
          make("span", { class: each.known ? "known" : "new", title: each.known ? `known: the client has it in ${each.known}` : "the client does not have it" }, each.known || "new"),
          make("span", { class: "soft" }, each.score.toFixed(2)), bar);
      });
      const content = items.length ? make("ol", { class: "answers" }, ...items) : make("p", { class: "empty" }, "Nothing is left: all of it is known.");
      return make("div", { class: "card", "data-view": view }, make("h3", {}, view), content);
    });
    const key = "Known triples are marked with their split: train was learned, valid and test were held back. Press an answer to see why.";
    host.replaceChildren(make("div", { class: "columns" }, ...cards), make("p", { class: "soft" }, key));
  };

  const why = (answer) => {
    const triple = tripleOf(answer);
    into("evidence", () => Promise.all([ask("evidence", { client: state.client, ...triple }), ask("rank", { client: state.client, ...triple })]), (host, [found, ranks]) => {
      const groups = [["Direct links", found.direct], ["Others that lead to the same tail", found.same_tail], ["What else the head has", found.same_head]];
      const cards = groups.filter(([, triples]) => triples.length).map(([title, triples]) => make("div", { class: "card" }, make("h3", {}, title), triplesList(triples)));
      if (found.paths.length) cards.splice(1, 0, make("div", { class: "card" }, make("h3", {}, "Over a third entity"), ...found.paths.map((path) => triplesList(path))));
      if (!cards.length) cards.push(make("p", { class: "empty" }, "The client knows nothing that links the two: the rows alone say so."));
      const places = Object.entries(ranks.views || {}).map(([view, rank]) => `${view}: head ${rank.head}, tail ${rank.tail}`).join("; ");
      const known = ranks.known === "train" ? forgetButton(triple) : null;
      host.replaceChildren(make("h3", {}, `Why (${triple.head}, ${triple.relation}, ${triple.tail})?`), make("p", { class: "soft" }, `Rank among ${ranks.entities} entities, other known answers left out: ${places}. `, known), make("div", { class: "columns" }, ...cards));
      host.scrollIntoView({ block: "nearest", behavior: "smooth" });
    });
  };

  const triplesList = (triples) => make("ul", { class: "triples" }, ...triples.map((each) => make("li", {},
    make("span", {}, entityLink(each.head), ` ${each.relation} `, entityLink(each.tail)),
    (each.known === "train" && forgetButton(each)) || make("span", { class: "soft" }, each.known || ""))));

  const entityLink = (label) => make("button", { class: "link", type: "button", onclick: () => { input.value = label; state.entity = label; showNeighbours(label); open("entity"); } }, label);

  // --- an entity

  const showNeighbours = (entity) => into("neighbours", () => ask("neighbours", { client: state.client, entity, limit: 100 }), (host, found) => {
    const some = found.triples.length < found.count ? `, ${found.triples.length} shown` : "";
    host.replaceChildren(make("h2", {}, found.entity),
      make("div", { class: "columns" },
        make("div", { class: "card" }, make("h3", {}, `Known triples (${found.count}${some})`), found.count ? triplesList(found.triples) : make("p", { class: "empty" }, "None.")),
        make("div", { class: "card" }, make("h3", {}, `Most alike, by the ${found.view} rows`), make("ol", { class: "answers" }, ...found.alike.map((each, i) => make("li", {}, make("span", { class: "soft" }, `${i + 1}`), entityLink(each.label), make("span"), make("span", { class: "soft" }, each.cosine.toFixed(3))))))));
  });

  // --- map and quality

  const showMap = () => {
    if (state.done.map) return;
    state.done.map = true;
    into("map-chart", () => ask("map"), (host, found) => {
      $("map-text").textContent = `${found.text} Click a point to look at it.`;
      host.dataset.label = found.text;
      charts.draw(host, found.spec, { pick: (client, label) => { choosePoint(client, label); }, mark: (number, i) => found.spec.series[number].labels[i] === state.entity });
    }).then(() => { if (!$("trouble").hidden) state.done.map = false; });
  };
  const choosePoint = (client, label) => {
    const go = () => { input.value = label; state.entity = label; showNeighbours(label); open("entity"); };
    if (client === state.client) go(); else { $("client").value = client; changeClient().then(go); }
  };

  const showQuality = () => {
    if (state.done.quality === state.client) return;
    state.done.quality = state.client;
    into("quality-table", () => ask("quality", { client: state.client }), (host, rows) => {
      if (!rows.length) { host.replaceChildren(make("p", { class: "empty" }, "No relation has enough test triples to judge it.")); return; }
      const views = Object.keys(rows[0].views);
      rows.sort((a, b) => b.test - a.test);
      const head = make("tr", {}, make("th", { scope: "col" }, "relation"), make("th", { scope: "col" }, "test triples"), ...views.flatMap((view) => [make("th", { scope: "col" }, `${view} MRR`), make("th", { scope: "col" }, "Hits@1")]));
      const body = rows.map((row) => make("tr", {}, make("td", {}, row.relation), make("td", {}, row.ranked < row.test ? `${row.test} (${row.ranked} ranked)` : `${row.test}`), ...views.flatMap((view) => {
        const cell = make("td", { class: "heat" }, (100 * row.views[view].mrr).toFixed(1));
        cell.style.setProperty("--share", row.views[view].mrr);
        return [cell, make("td", {}, (100 * row.views[view]["hits@1"]).toFixed(1))];
      })));
      host.replaceChildren(make("p", { class: "soft" }, "How well each relation's test triples are ranked, x 100, the most frequent first."), make("div", { class: "scroll", tabindex: "0" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body))));
    }).then(() => { if (!$("trouble").hidden) state.done.quality = null; });
  };

  // --- forgetting

  const keyOf = (t) => JSON.stringify([t.head, t.relation, t.tail]);
  const forgetButton = (triple) => {
    if (!state.run.allow_forget) return null;
    const inside = () => state.basket.has(keyOf(triple));
    const button = make("button", { class: "small", type: "button", onclick: () => {
      inside() ? state.basket.delete(keyOf(triple)) : state.basket.set(keyOf(triple), triple);
      name();
      count();
    } });
    const name = () => { button.textContent = inside() ? "keep" : "forget"; };
    name();
    return button;
  };
  const count = () => { $("count").textContent = state.basket.size ? `(${state.basket.size})` : ""; };

  const showBasket = () => {
    const chosen = [...state.basket.values()];
    if (!chosen.length) { $("basket").replaceChildren(make("p", { class: "empty" }, "Nothing is chosen. Press “forget” beside a known triple that was learned.")); return; }
    const go = make("button", { class: "danger", type: "button" }, `Forget ${chosen.length} triple${chosen.length > 1 ? "s" : ""} of ${state.client}`);
    go.addEventListener("click", async () => {
      go.disabled = true;
      try { await ask("forget", {}, { client: state.client, triples: chosen.map((t) => [t.head, t.relation, t.tail]) }); well(); follow(); }
      catch (trouble) { fail(trouble); go.disabled = false; }
    });
    $("basket").replaceChildren(make("p", {}, "These go from a new run beside this one; the run itself is left as it is."),
      make("ul", { class: "triples card" }, ...chosen.map((t) => make("li", {}, make("span", {}, `${t.head} ${t.relation} ${t.tail}`), make("button", { class: "small", type: "button", onclick: () => { state.basket.delete(keyOf(t)); count(); showBasket(); } }, "keep")))), make("p", {}, go));
  };

  const follow = async () => {
    const bar = make("progress", { "aria-label": "forgetting" }), text = make("p", { class: "soft" }, "Starting …");
    $("progress").replaceChildren(bar, text);
    for (;;) {
      let job;
      try { job = await ask("forget"); } catch (trouble) { fail(trouble); return; }
      text.textContent = job.message;
      if (job.state === "failed") { bar.remove(); fail(new Error(job.message)); showBasket(); return; }
      if (job.state === "done") { finished(job); return; }
      await new Promise((wake) => setTimeout(wake, 400));
    }
  };

  const finished = async (job) => {
    state.basket.clear();
    count();
    const rows = job.ranks.flatMap((each) => Object.entries(each.before.views).map(([view, before]) => {
      const after = each.after.views && each.after.views[view];
      const cell = (end) => make("td", { class: after && after[end] > before[end] ? "fell" : "", "data-end": end }, after ? `${before[end]} → ${after[end]}` : `${before[end]} → gone`);
      return make("tr", {}, make("td", {}, `${each.head} ${each.relation} ${each.tail}`), make("td", { class: "left" }, view), cell("head"), cell("tail"));
    }));
    const head = make("tr", {}, ...["triple", "rows", "rank of the head", "rank of the tail"].map((name) => make("th", { scope: "col" }, name)));
    $("progress").replaceChildren(make("h3", {}, "Forgotten"), make("p", {}, `${job.message}. You are looking at it now. A rank that rises says that the answer is no longer expected.`), make("div", { class: "scroll", tabindex: "0" }, make("table", { id: "ranks" }, make("thead", {}, head), make("tbody", {}, ...rows))));
    $("basket").replaceChildren();
    await start(state.client);
  };

  // --- beginning

  const changeClient = async () => {
    state.client = $("client").value;
    state.basket.clear();
    count();
    try {
      const found = await ask("relations", { client: state.client });
      $("relation").replaceChildren(...found.map((each) => make("option", { value: each.label }, `${each.label} (${each.triples})`)));
      well();
    } catch (trouble) { fail(trouble); }
    $("answers").replaceChildren(make("p", { class: "empty" }, "Choose an entity and a relation to see what the run predicts."));
    $("evidence").replaceChildren();
    input.value = "";
    state.entity = null;
    if (!$("quality").hidden) showQuality();
  };

  const start = async (client) => {
    try {
      const run = (state.run = await ask("run"));
      state.done = {};
      document.title = `${run.run} · fedlu explore`;
      $("run").textContent = run.run;
      const test = Object.entries(run.test).map(([view, found]) => `${view} ${(100 * found.mrr).toFixed(1)}`).join(", ");
      $("about").textContent = `${run.method}, ${run.model}, on ${run.federation}. Test MRR x 100: ${test || "not measured"}.`;
      $("client").replaceChildren(...run.clients.map((each) => make("option", { value: each.name }, `${each.name} (${each.entities.toLocaleString("en")} entities)`)));
      document.querySelector("[data-tab=forget]").hidden = !run.allow_forget;
      if (client && run.clients.some((each) => each.name === client)) $("client").value = client;
      await changeClient();
    } catch (trouble) { $("about").textContent = "No run can be shown."; fail(trouble); }
  };
  $("client").addEventListener("change", changeClient);
  $("question").addEventListener("submit", (event) => { event.preventDefault(); close(); predict(); });
  for (const each of ["relation", "new-only"]) $(each).addEventListener("change", () => { if (input.value) predict(); });
  for (const each of document.querySelectorAll("input[name=side]")) each.addEventListener("change", () => { if (input.value) predict(); });
  start();
})();
