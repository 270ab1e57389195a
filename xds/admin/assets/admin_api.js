// Requests to the admin API. The token stays in this tab, and is sent to this server alone.

const TOKEN_KEY = "xds-token";
export const API = "/api/v1";

// `asks` is true where the server asks for a credential, or for one with more rights.
export class ApiError extends Error {
  constructor(status, detail, asks) {
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

// The response of a path below the API. Throws an ApiError with the server's detail.
export async function open(path, accept = "application/json", signal = undefined) {
  const response = await fetch(API + path, { headers: headers({ Accept: accept }), signal });
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new ApiError(response.status, problem.detail ?? response.statusText, response.headers.has("WWW-Authenticate"));
}

export async function get(path) {
  return (await open(path)).json();
}

// The lines of an answer that does not end, each as JSON.
export async function* lines(path, signal) {
  const response = await open(path, "application/x-ndjson", signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const line of parts) yield line ? JSON.parse(line) : null;
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
    sessionStorage.setItem(TOKEN_KEY, document.getElementById("token").value.trim());
    offerSignOut();
    calm();
    again();
  };
}

export function calm() {
  document.getElementById("sign-in").hidden = true;
  document.getElementById("problem").hidden = true;
}
