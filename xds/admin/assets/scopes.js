// What the scopes of a caller allow, as the server judges them, so that a page can say which one is missing before
// anybody tries.

const WRITE = "write:group/";

export const writeScope = (group) => `${WRITE}${group}`;

// Whether the answer of `/whoami` belongs to somebody who may push to a group.
export function mayWrite(caller, group) {
  const globs = caller.scopes.filter((scope) => scope.startsWith(WRITE)).map((scope) => scope.slice(WRITE.length));
  return caller.scopes.includes("admin") || globs.some((glob) => patternOf(glob).test(group));
}

// `*`, `?`, `[ab]` and `[!ab]`, as in a shell.
function patternOf(glob) {
  const literal = (text) => text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
  const part = (text) => {
    if (text === "*") return "[^]*";
    if (text === "?") return "[^]";
    if (text.length === 1) return literal(text);
    const [sign, members] = text[1] === "!" ? ["^", text.slice(2, -1)] : ["", text.slice(1, -1)];
    return `[${sign}${members.replace(/[\\\]^]/g, "\\$&")}]`;
  };
  return new RegExp(`^${glob.replace(/\[!?[^][^\]]*\]|[^]/g, part)}$`);
}
