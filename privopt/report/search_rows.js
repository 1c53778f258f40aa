// Tables of more than a hundred rows: the box above a table searches all of its rows, which are in its link to a CSV
// file. Below, firstRows and initialStatus are what the page shows without a search.
for (const part of document.querySelectorAll(".long")) {
  const bytes = Uint8Array.from(atob(part.querySelector("a[download]").href.split("base64,")[1]), (c) => c.charCodeAt(0));
  const [header, ...rows] = readCsv(new TextDecoder().decode(bytes));
  const body = part.querySelector("tbody"), firstRows = [...body.rows], status = part.querySelector("[role=status]");
  const numeric = [...part.querySelectorAll("thead th")].map((cell) => cell.classList.contains("n"));
  const formatCount = (number) => Number(number).toLocaleString("en");
  // Whole numbers are shown in full, others with three significant digits, or without decimals from 1,000 on.
  const formatNumber = (value) =>
    Number.isInteger(value) || Math.abs(value) >= 1000 ? formatCount(Math.round(value)) : String(Number(value.toPrecision(3)));
  const initialStatus = status.textContent;

  part.querySelector("input").addEventListener("input", (event) => {
    const query = event.target.value.trim().toLowerCase();
    if (!query) {
      body.replaceChildren(...firstRows);
      status.textContent = initialStatus;
      return;
    }
    const matches = rows.filter((row) => row.some((cell) => cell.toLowerCase().includes(query)));
    const shown = matches.slice(0, firstRows.length);
    body.replaceChildren(...shown.map(makeRow));
    const noun = matches.length === 1 ? "row" : "rows";
    status.textContent = `${formatCount(shown.length)} of ${formatCount(matches.length)} ${noun} with these words`;
  });

  // Return a table row of the cells of a CSV row, with numbers formatted as in the page (format_text).
  function makeRow(cells) {
    const row = document.createElement("tr");
    cells.forEach((text, column) => {
      const cell = row.insertCell();
      cell.dataset.label = header[column];
      if (numeric[column]) cell.className = "n";
      // A column of numbers may have texts too, such as those of cells that were left out.
      cell.textContent = numeric[column] && text && isFinite(text) ? formatNumber(Number(text)) : text;
    });
    return row;
  }
}

// Return the rows of a CSV text, each as a list of cells. Cells may be quoted, with quotes inside doubled.
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
