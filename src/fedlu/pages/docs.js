// The API's own description, as a page: what FastAPI's usual page shows, without scripts from elsewhere.
"use strict";
(async () => {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  document.getElementById("back").href = `/${location.hash}`;
  const make = (tag, attributes, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const reply = await fetch("/api/openapi.json", { headers: token ? { Authorization: `Bearer ${token}` } : {} });
  const found = await reply.json();
  document.getElementById("about").textContent = reply.ok ? found.info.description : found.error;
  if (!reply.ok) return;
  const kind = (schema) => (schema.anyOf ? schema.anyOf.map((each) => each.type).join(" or ") : schema.type);
  const bounds = (schema) => ["minimum", "maximum", "maxLength", "default"].filter((name) => schema[name] != null).map((name) => `${name} ${schema[name]}`).join(", ");
  for (const [path, methods] of Object.entries(found.paths)) {
    for (const [method, each] of Object.entries(methods)) {
      const rows = (each.parameters || []).map((p) => make("tr", {}, make("td", {}, p.name), make("td", { class: "left" }, kind(p.schema)), make("td", { class: "left" }, p.required ? "needed" : ""), make("td", { class: "left" }, bounds(p.schema))));
      const section = make("section", {}, make("h2", {}, make("code", {}, `${method.toUpperCase()} ${path}`)), make("p", {}, each.summary || ""));
      if (rows.length) section.append(make("div", { class: "scroll" }, make("table", {}, ...rows)));
      document.getElementById("paths").append(section);
    }
  }
})();
