// When a page is read again: after an event of the server, at most once a second; then after 2, 4, 8 and 15 seconds,
// and every 15 seconds. ACKs are no events here: the server records them for each stream only while somebody asks for
// them. So after a push the waits show how it goes on, and a page that is open costs the streams nothing.
//
// A hidden tab reads nothing and follows no events.

import { lines } from "./admin_api.js";

const WAITS_MS = [1000, 2000, 4000, 8000, 15000];
const RECONNECT_MS = 2000;
const PILLS = {
  connecting: ["connecting", "The page waits for the server"],
  live: ["live", "Click to pause"],
  paused: ["paused", "Click to continue"],
  refused: ["not live", "The server sends no events. The page is read every 15 seconds"],
  lost: ["no connection", "The server does not answer. The page tries again every two seconds"],
};

const pill = document.getElementById("live");

// `read` reads and draws the page; it never throws, and answers whether the page may be read again. `wants` says
// whether an event concerns the page.
export class Refresh {
  constructor(read, wants) {
    this.read = read;
    this.wants = wants;
    this.paused = false;
    this.waits = 0;
    this.timer = 0;
    this.following = null;
    this.turn = null; // the read that goes on
    pill.hidden = false;
    pill.onclick = () => this.pause(!this.paused);
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.stop();
      else if (!this.paused) this.now();
    });
  }

  // Reads at once, and from now on when it is time.
  async now() {
    clearTimeout(this.timer);
    const turn = (this.turn = Symbol("turn"));
    const goesOn = await this.read();
    if (turn !== this.turn) return; // another read has begun meanwhile, or `stop` was called
    this.turn = null;
    if (!goesOn) return this.stop();
    if (this.paused || document.hidden) return;
    this.last = performance.now();
    this.plan();
    this.following ??= this.follow();
  }

  // Reads nothing until `now`.
  stop() {
    clearTimeout(this.timer);
    this.turn = null;
    this.abort?.abort();
    this.following = null;
  }

  pause(paused) {
    this.paused = paused;
    this.tell(paused ? "paused" : "connecting");
    if (paused) this.stop();
    else this.begin();
  }

  // A new view: the waits begin anew.
  begin() {
    this.waits = 0;
    return this.now();
  }

  plan() {
    clearTimeout(this.timer);
    const wait = this.last + WAITS_MS[this.waits] - performance.now();
    this.timer = setTimeout(() => {
      this.waits = Math.min(this.waits + 1, WAITS_MS.length - 1);
      this.now();
    }, Math.max(0, wait));
  }

  // What happens on the server. It ends when `stop` aborts it.
  async follow() {
    const abort = (this.abort = new AbortController());
    while (!abort.signal.aborted) {
      let refusal = "";
      try {
        for await (const event of lines("/events", abort.signal)) {
          this.tell("live");
          if (event && this.wants(event)) this.happened();
        }
      } catch (error) {
        if (abort.signal.aborted) return;
        if (error.asks) this.now(); // the page tells why
        if (error.status > 0) refusal = error.message || `${error.status}`;
      }
      this.tell(refusal ? "refused" : "lost", refusal);
      await new Promise((done) => setTimeout(done, refusal ? WAITS_MS.at(-1) : RECONNECT_MS));
      if (!abort.signal.aborted && !refusal) this.now();
    }
  }

  happened() {
    this.waits = 0;
    if (!this.turn) this.plan(); // else after the read that goes on
  }

  tell(what, why = "") {
    pill.dataset.state = what;
    [pill.textContent, pill.title] = PILLS[what];
    if (why) pill.title += `: ${why}`;
  }
}
