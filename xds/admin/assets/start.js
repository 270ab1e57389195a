import { calm, get, tell } from "./admin_api.js";

async function show() {
  try {
    const [version, caller, nodes] = await Promise.all([get("/version"), get("/whoami"), get("/nodes?limit=1")]);
    calm();
    facts({
      version: `${version.version} (Python ${version.python}, envoy-data-plane ${version.envoy_data_plane})`,
      "signed in as": caller.name || caller.principal || "nobody: this server requires no credentials",
      ...(nodes.items.length ? {} : { nodes: "none is connected; xds bootstrap prints a configuration that connects one" }),
    });
  } catch (error) {
    tell(error, show);
  }
}

function facts(values) {
  const list = document.getElementById("facts");
  list.replaceChildren();
  for (const [name, value] of Object.entries(values)) {
    const [term, text] = [document.createElement("dt"), document.createElement("dd")];
    term.textContent = name;
    text.textContent = value;
    list.append(term, text);
  }
}

show();
