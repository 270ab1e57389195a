// Requests to the admin API. The token stays in this tab, and is sent to this server alone.

const TOKEN_KEY = "xds-token";
export const API = "/api/v1";

// `status` is 0 where the server does not answer. `asks` is true where it asks for a credential, or for one with more
// rights.
export class ApiError extends Error {
  constructor(status, detail, asks = false) {
    super(detail);
    this.status = status;
    this.asks = asks;
  }
}

const signOut = document.getElementById("sign-out");

// A reload forgets all that the page has read, too.
signOut.onclick = () => {
  sessionStorage.removeItem(TOKEN_KEY);
  location.reload();
};

function offerSignOut() {
  signOut.hidden = !sessionStorage.getItem(TOKEN_KEY);
}

offerSignOut();

export function headers(more = {}) {
  const token = sessionStorage.getItem(TOKEN_KEY);
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

// A path below the API or of a page: a text of several segments as it is, then names, which may hold any character.
export function pathOf(start, ...names) {
  return [start, ...names.map(encodeURIComponent)].join("/");
}

// The query of a path: only values that are not empty.
export function queryOf(values) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value || value === 0));
  return query.size ? `?${query}` : "";
}

// The response of a path below the API. Throws an ApiError with the server's detail.
export async function open(path, { accept = "application/json", headers: more = {}, ...options } = {}) {
  const asked = { headers: headers({ Accept: accept, ...more }), ...options };
  const response = await fetch(API + path, asked).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer.");
  });
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new ApiError(response.status, problem.detail ?? response.statusText, response.headers.has("WWW-Authenticate"));
}

export async function get(path, signal = undefined) {
  return (await open(path, { signal })).json();
}

// As `get`, but null where the server has no such thing, or no more. It is not told as a 404 or 410, which browsers
// show as errors.
export async function find(path, signal = undefined) {
  const response = await open(path, { headers: { Prefer: "empty-if-absent" }, signal });
  return response.status === 204 ? null : response.json();
}

// A change: `send("POST", "/groups/edge/rollback", { to: 3 }, { "If-Match": ... })`; what the server answers.
export async function send(method, path, body = undefined, more = {}) {
  const typed = body === undefined ? more : { "Content-Type": "application/json", ...more };
  const response = await open(path, { method, headers: typed, body: body && JSON.stringify(body) });
  return response.json();
}

// The lines of an answer that may not end, each as JSON; null for an empty line.
export async function* lines(path, signal) {
  const response = await open(path, { accept: "application/x-ndjson", signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      for (const line of parts) yield line ? JSON.parse(line) : null;
    }
  } finally {
    reader.cancel().catch(() => {}); // the caller wants no more; an answer that has ended cannot be cancelled
  }
}

// Shows why a request failed; asks for a token where one is needed, and calls `again` with it.
export function tell(error, again) {
  const form = document.getElementById("sign-in");
  const alert = document.getElementById("problem");
  const asks = error instanceof ApiError && error.asks;
  form.hidden = !asks;
  alert.hidden = asks && error.status === 401 && !sessionStorage.getItem(TOKEN_KEY);
  alert.textContent = error.message;
  form.onsubmit = (event) => {
    event.preventDefault();
    const token = document.getElementById("token");
    sessionStorage.setItem(TOKEN_KEY, token.value.trim());
    token.value = "";
    offerSignOut();
    calm();
    again();
  };
}

export function calm() {
  document.getElementById("sign-in").hidden = true;
  document.getElementById("problem").hidden = true;
}
