// Tables of more than a hundred rows: the box above one searches all of its rows, which its link to a CSV carries.
for (const part of document.querySelectorAll(".long")) {
  const bytes = Uint8Array.from(atob(part.querySelector("a[download]").href.split("base64,")[1]), (c) => c.charCodeAt(0));
  const [header, ...rows] = readCsv(new TextDecoder().decode(bytes));
  const body = part.querySelector("tbody"), first = [...body.rows], status = part.querySelector("[role=status]");
  const numeric = [...part.querySelectorAll("thead th")].map((cell) => cell.classList.contains("n"));
  const count = (number) => Number(number).toLocaleString("en");
  const whole = status.textContent;

  part.querySelector("input").addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    if (!wanted) {
      body.replaceChildren(...first);
      status.textContent = whole;
      return;
    }
    const found = rows.filter((row) => row.some((cell) => cell.toLowerCase().includes(wanted)));
    body.replaceChildren(...found.slice(0, first.length).map(makeRow));
    const noun = found.length === 1 ? "row" : "rows";
    status.textContent = `${count(Math.min(found.length, first.length))} of ${count(found.length)} ${noun} with these words`;
  });

  function makeRow(cells) {
    const row = document.createElement("tr");
    cells.forEach((text, column) => {
      const cell = row.insertCell();
      cell.dataset.label = header[column];
      if (numeric[column]) cell.className = "n";
      const value = Number(text);
      cell.textContent = numeric[column] ? (Number.isInteger(value) ? count(value) : String(Number(value.toPrecision(4)))) : text;
    });
    return row;
  }
}

// Cells may be quoted, and quotes in them doubled.
function readCsv(text) {
  const rows = [];
  let row = [];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\n]*))(,|\n|$)/g)) {
    row.push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end === ",") continue;
    rows.push(row);
    row = [];
  }
  return rows.filter((cells) => cells.length > 1 || cells[0]);
}
