// Runs the script of reports' "Check it here" without a browser: node run_check.js REPORT...; prints {verdict, lines} of each.
const { readFileSync } = require("fs");
const element = (listen) => ({
  dataset: {}, children: [], textContent: "",
  appendChild(child) { this.children.push(child); return child; },
  replaceChildren() { this.children = []; },
  addEventListener(_, then) { listen(then); },
});
const run = async (path) => {
  const [, text, script] = /id="check-data">([\s\S]*?)<\/script>\s*<script>([\s\S]*?)<\/script>/.exec(readFileSync(path, "utf8"));
  let pressed;
  const made = () => element((then) => { pressed = then; });
  const found = { "check-data": { textContent: text }, "check-run": made(), "check-claims": made() };
  globalThis.document = { getElementById: (id) => found[id], createElement: made };
  (0, eval)(script);
  await pressed();
  const claims = found["check-claims"];
  console.log(JSON.stringify({ verdict: claims.dataset.verdict, lines: claims.children.map((line) => line.textContent) }));
};
(async () => { for (const path of process.argv.slice(2)) await run(path); })();
