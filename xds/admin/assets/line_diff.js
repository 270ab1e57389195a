// How two texts differ, line by line: Myers' algorithm, within a bound of effort.

const EDITS_LIMIT = 1500; // beyond it, all lines between the equal ends count as different
const CONTEXT = 3; // unchanged lines around a change

// Rows, each with the line before and after: `{ kind, before, after }`. A line is `{ number, text }`, or null where
// there is none. `kind` is "same" or "changed"; "fold" has unchanged `rows` that are not worth showing.
export function sideBySide(before, after) {
  return folded(paired(before, after, edits(before, after)));
}

// "same", "removed" and "added" in the order of the lines.
function edits(before, after) {
  const least = Math.min(before.length, after.length);
  let start = 0;
  while (start < least && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < least - start && before[before.length - 1 - end] === after[after.length - 1 - end]) end += 1;
  const [old, fresh] = [before, after].map((lines) => lines.slice(start, lines.length - end));
  const between = shortest(old, fresh) ?? [...old.map(() => "removed"), ...fresh.map(() => "added")];
  return [...Array(start).fill("same"), ...between, ...Array(end).fill("same")];
}

// The shortest script of edits; null if it is longer than the limit. `reached[k]` is how far along `old` the diagonal k
// (place in `old` less place in `fresh`) goes with `count` edits.
function shortest(old, fresh) {
  const limit = Math.min(old.length + fresh.length, EDITS_LIMIT);
  const middle = limit + 1;
  const reached = new Int32Array(2 * middle + 1);
  const earlier = [];
  for (let count = 0; count <= limit; count += 1) {
    earlier.push(reached.slice(middle - count - 1, middle + count + 2));
    for (let k = -count; k <= count; k += 2) {
      const isAdded = isFromAbove(k, count, (other) => reached[middle + other]);
      let at = isAdded ? reached[middle + k + 1] : reached[middle + k - 1] + 1;
      while (at < old.length && at - k < fresh.length && old[at] === fresh[at - k]) at += 1;
      reached[middle + k] = at;
      if (at >= old.length && at - k >= fresh.length) return backwards(old.length, fresh.length, earlier);
    }
  }
  return null;
}

const isFromAbove = (k, count, reachedAt) => k === -count || (k !== count && reachedAt(k - 1) < reachedAt(k + 1));

function backwards(at, other, earlier) {
  const script = [];
  for (let count = earlier.length - 1; count >= 0; count -= 1) {
    const reachedAt = (k) => earlier[count][k + count + 1];
    const k = at - other;
    const isAdded = isFromAbove(k, count, reachedAt);
    const from = count === 0 ? 0 : reachedAt(isAdded ? k + 1 : k - 1);
    const fromOther = count === 0 ? 0 : from - (isAdded ? k + 1 : k - 1);
    while (at > from && other > fromOther) {
      script.push("same");
      at -= 1;
      other -= 1;
    }
    if (count > 0) script.push(isAdded ? "added" : "removed");
    [at, other] = [from, fromOther];
  }
  return script.reverse();
}

// Removed and added lines that follow each other stand side by side.
function paired(before, after, script) {
  const rows = [];
  let [old, fresh] = [0, 0];
  const line = (lines, at) => ({ number: at + 1, text: lines[at] });
  for (let at = 0; at < script.length; ) {
    if (script[at] === "same") {
      rows.push({ kind: "same", before: line(before, old), after: line(after, fresh) });
      [at, old, fresh] = [at + 1, old + 1, fresh + 1];
      continue;
    }
    const [removed, added] = [[], []];
    for (; at < script.length && script[at] !== "same"; at += 1) {
      if (script[at] === "removed") removed.push(line(before, old++));
      else added.push(line(after, fresh++));
    }
    for (let row = 0; row < Math.max(removed.length, added.length); row += 1) {
      rows.push({ kind: "changed", before: removed[row] ?? null, after: added[row] ?? null });
    }
  }
  return rows;
}

function folded(rows) {
  const found = [];
  for (let at = 0; at < rows.length; ) {
    let end = at;
    while (end < rows.length && rows[end].kind === "same") end += 1;
    if (end === at) {
      found.push(rows[at]);
      at += 1;
      continue;
    }
    const head = at === 0 ? 0 : CONTEXT;
    const tail = end === rows.length ? 0 : CONTEXT;
    const from = Math.min(at + head, end);
    const to = Math.max(from, end - tail);
    const hidden = to - from > 1 ? [{ kind: "fold", rows: rows.slice(from, to) }] : rows.slice(from, to);
    found.push(...rows.slice(at, from), ...hidden, ...rows.slice(to, end));
    at = end;
  }
  return found;
}
