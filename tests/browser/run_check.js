// Runs the script of a report's "Check it here" without a browser: node run_check.js REPORT; prints {verdict, lines}.
const page = require("fs").readFileSync(process.argv[2], "utf8");
const [, text, script] = /id="check-data">([\s\S]*?)<\/script><script>([\s\S]*?)<\/script>/.exec(page);
let pressed;
const element = () => ({
  dataset: {}, children: [], textContent: "",
  appendChild(child) { this.children.push(child); return child; },
  replaceChildren() { this.children = []; },
  addEventListener(_, then) { pressed = then; },
});
const found = { "check-data": { textContent: text }, "check-run": element(), "check-claims": element() };
globalThis.document = { getElementById: (id) => found[id], createElement: element };
(0, eval)(script);
pressed().then(() => {
  const claims = found["check-claims"];
  console.log(JSON.stringify({ verdict: claims.dataset.verdict, lines: claims.children.map((line) => line.textContent) }));
});
