(async () => {
  "use strict";
  const find = (id) => document.getElementById(id);
  const data = JSON.parse(find("data").textContent);
  const canvas = find("map"), list = find("record"), told = find("told");
  const pen = canvas.getContext("2d");
  const width = data.outputs.length, count = data.records.length;
  const pairs = (flat) => Array.from({ length: flat.length / 2 }, (_, n) => [flat[2 * n], flat[2 * n + 1]]);
  const places = pairs(data.places), outputPlaces = pairs(data.outputPlaces);
  const streets = pairs(data.streets);
  const packed = Uint8Array.from(atob(data.shares), (sign) => sign.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const shares = new Uint8Array(await new Response(stream).arrayBuffer());

  const points = outputPlaces.concat(places);
  const least = [0, 1].map((axis) => points.reduce((a, p) => Math.min(a, p[axis]), Infinity));
  const most = [0, 1].map((axis) => points.reduce((a, p) => Math.max(a, p[axis]), -Infinity));
  const span = [most[0] - least[0] || 1, most[1] - least[1] || 1];
  const edge = 46, full = 1000;
  const height = Math.round(Math.min(640, Math.max(260, (full - 2 * edge) * span[1] / span[0] + 2 * edge)));
  const dense = Math.min(2, window.devicePixelRatio || 1);
  canvas.width = full * dense;
  canvas.height = height * dense;
  canvas.style.aspectRatio = `${full} / ${height}`;
  const scale = Math.min((full - 2 * edge) / span[0], (height - 2 * edge) / span[1]);
  const shift = [(full - span[0] * scale) / 2, (height - span[1] * scale) / 2];
  const at = (p) => [shift[0] + (p[0] - least[0]) * scale, height - shift[1] - (p[1] - least[1]) * scale];

  // Half the distance to the nearest neighbour, so that a grid fills its area and close points do not hide each other.
  function spacing() {
    const some = outputPlaces.filter((_, n) => n % Math.ceil(width / 200) === 0);
    const near = some.map((p) => outputPlaces.reduce((a, q) => {
      const d = Math.hypot(p[0] - q[0], p[1] - q[1]);
      return d > 0 && d < a ? d : a;
    }, Infinity)).sort((a, b) => a - b);
    return (near[Math.floor(near.length / 2)] || Infinity) * scale / 2;
  }
  const radius = Math.max(2.5, Math.min(22, 0.92 * spacing()));
  const share = (row, k) => shares[row * width + k] / data.steps;
  const probability = (row, k) => share(row, k) ** 2 * data.greatest[row];
  const percent = (p) => `${Number((100 * p).toPrecision(p < 0.001 ? 1 : 2))} %`;

  function dot(place, size) {
    const [x, y] = at(place);
    pen.beginPath();
    pen.arc(x, y, size, 0, 2 * Math.PI);
  }

  const part = (colour) => [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
  const mixed = (low, high, value) => `rgb(${low.map((from, n) => Math.round(from + (high[n] - from) * value)).join()})`;

  function ruler(ink) {
    if (!data.scale) return;
    const wanted = span[0] / 5, power = 10 ** Math.floor(Math.log10(wanted));
    const length = [5, 2, 1].map((n) => n * power).find((n) => n <= wanted) || power;
    pen.strokeStyle = pen.fillStyle = ink;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(14, height - 12);
    pen.lineTo(14 + length * scale, height - 12);
    pen.stroke();
    pen.font = "13px system-ui, sans-serif";
    pen.fillText(`${Number(length.toPrecision(2))} ${data.scale}`, 14, height - 18);
  }

  function show(row) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const wide = (hex) => hex.length === 4 ? `#${[...hex.slice(1)].map((c) => c + c).join("")}` : hex;
    const low = part(wide(colour("pale"))), high = part(wide(colour("mark")));
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, full, height);
    pen.strokeStyle = colour("soft");  // faint outputs would vanish, in the dark above all
    pen.lineWidth = 1;
    pen.beginPath();
    for (const [a, b] of streets) { pen.moveTo(...at(places[a])); pen.lineTo(...at(places[b])); }
    pen.stroke();
    const order = [...data.outputs.keys()].sort((a, b) => share(row, a) - share(row, b));
    for (const k of order) {
      dot(outputPlaces[k], radius);
      pen.fillStyle = mixed(low, high, share(row, k));
      pen.fill();
      pen.stroke();
    }
    if (data.marked) {
      pen.strokeStyle = colour("ink");
      pen.lineWidth = 1.5;
      for (const k of data.marked[row]) { dot(outputPlaces[k], radius); pen.stroke(); }
    }
    ruler(colour("soft"));
    pen.lineWidth = 3;
    pen.strokeStyle = colour("bad");
    dot(places[row], radius + 3);
    pen.stroke();
    tell(row, order.slice(-5).reverse().filter((k) => share(row, k) > 0));
  }

  function tell(row, likely) {
    const facts = Object.entries(data.facts).map(([name, values]) => `${name}: ${values[row]} ${data.unit[name] || ""}`);
    const lists = [
      [`From ${data.records[row]}, most likely`, likely.map((k) => `${data.outputs[k]}: ${data.steps < 255 ? "about " : ""}${percent(probability(row, k))}`)],
      [`Of ${data.records[row]}`, facts],
    ];
    told.replaceChildren(...lists.map(([head, lines]) => {
      const box = document.createElement("div"), title = document.createElement("p");
      const strong = document.createElement("strong"), items = document.createElement("ul");
      strong.textContent = head;
      title.append(strong);
      for (const line of lines) items.append(Object.assign(document.createElement("li"), { textContent: line.trim() }));
      box.append(title, items);
      return box;
    }));
  }

  const choose = (row) => { list.value = String(row); show(row); };
  list.addEventListener("change", () => show(Number(list.value)));
  find("before").addEventListener("click", () => choose((Number(list.value) + count - 1) % count));
  find("after").addEventListener("click", () => choose((Number(list.value) + 1) % count));
  canvas.addEventListener("click", (event) => {
    const box = canvas.getBoundingClientRect();
    const x = (event.clientX - box.left) * full / box.width, y = (event.clientY - box.top) * height / box.height;
    let best = 0, nearest = Infinity;
    places.forEach((place, row) => {
      const [px, py] = at(place), away = (px - x) ** 2 + (py - y) ** 2;
      if (away < nearest) { nearest = away; best = row; }
    });
    choose(best);
  });
  const again = () => show(Number(list.value));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  matchMedia("print").addEventListener("change", again);
  choose(Number(list.value) || 0);
  canvas.dataset.ready = "yes";
})();
