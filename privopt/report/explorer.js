(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("map");
  const list = document.getElementById("record");
  const told = document.getElementById("told");
  const pen = canvas.getContext("2d");
  const raw = atob(data.shares);
  const width = data.outputs.length;
  const points = data.outputPlaces.concat(data.places);
  const least = [0, 1].map((axis) => points.reduce((a, p) => Math.min(a, p[axis]), Infinity));
  const most = [0, 1].map((axis) => points.reduce((a, p) => Math.max(a, p[axis]), -Infinity));
  const span = [most[0] - least[0] || 1, most[1] - least[1] || 1];
  const scale = Math.min((canvas.width - 60) / span[0], (canvas.height - 60) / span[1]);
  const shift = [(canvas.width - span[0] * scale) / 2, (canvas.height - span[1] * scale) / 2];
  const at = (p) => [shift[0] + (p[0] - least[0]) * scale, canvas.height - shift[1] - (p[1] - least[1]) * scale];
  const radius = Math.max(2.5, Math.min(14, 260 / Math.sqrt(width)));
  const share = (row, k) => raw.charCodeAt(row * width + k) / 255;

  function dot(place, size, fill) {
    const [x, y] = at(place);
    pen.beginPath();
    pen.arc(x, y, size, 0, 2 * Math.PI);
    if (fill) { pen.fillStyle = fill; pen.fill(); } else { pen.stroke(); }
  }

  function show(row) {
    pen.fillStyle = "#ffffff";
    pen.fillRect(0, 0, canvas.width, canvas.height);
    const order = [...data.outputs.keys()].sort((a, b) => share(row, a) - share(row, b));
    for (const k of order) {
      const value = share(row, k);
      const mix = (from, to) => Math.round(from + (to - from) * value);
      dot(data.outputPlaces[k], radius, `rgb(${mix(228, 8)},${mix(233, 64)},${mix(238, 129)})`);
    }
    pen.lineWidth = 3;
    pen.strokeStyle = "#b3261e";
    dot(data.places[row], radius + 4, null);
    const likely = order.slice(-5).reverse().filter((k) => share(row, k) > 0);
    const lines = likely.map((k) => {
      const p = share(row, k) ** 2 * data.greatest[row];
      return `${data.outputs[k]} (about ${(100 * p).toPrecision(2)} %)`;
    });
    told.textContent = `From ${data.records[row]}: most likely ${lines.join(", ")}. ` +
      `Expected loss ${data.loss[row]} ${data.unit}.`;
  }

  list.addEventListener("change", () => show(Number(list.value)));
  canvas.addEventListener("click", (event) => {
    const box = canvas.getBoundingClientRect();
    const x = (event.clientX - box.left) * canvas.width / box.width;
    const y = (event.clientY - box.top) * canvas.height / box.height;
    let best = 0, nearest = Infinity;
    data.places.forEach((place, row) => {
      const [px, py] = at(place);
      const away = (px - x) ** 2 + (py - y) ** 2;
      if (away < nearest) { nearest = away; best = row; }
    });
    list.value = String(best);
    show(best);
  });
  show(0);
})();
