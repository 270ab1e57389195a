// Instances of services in words.

import { state } from "./dom.js";

const KINDS = { passing: "ok", warning: "warning", critical: "failed", draining: "disconnected" };

export const health = ({ health: name }) => state(KINDS[name] ?? "", name);

export const instanceWords = ({ address, port }) => `${address.includes(":") ? `[${address}]` : address}:${port}`;
