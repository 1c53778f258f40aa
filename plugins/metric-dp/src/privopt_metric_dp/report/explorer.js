(async () => {
  "use strict";
  const find = (id) => document.getElementById(id);
  const made = (name, text) => Object.assign(document.createElement(name), { textContent: text });
  const data = JSON.parse(find("data").textContent);
  const canvas = find("map"), list = find("record"), layer = find("layer"), odds = find("odds");
  const pen = canvas.getContext("2d");
  const width = data.outputs.length, count = data.records.length, rows = [...data.records.keys()];
  const pairs = (flat) => Array.from({ length: flat.length / 2 }, (_, n) => [flat[2 * n], flat[2 * n + 1]]);
  const places = pairs(data.places), outputPlaces = data.outputPlaces ? pairs(data.outputPlaces) : places;
  const streets = pairs(data.streets), streetPlaces = data.streetsJoinOutputs ? outputPlaces : places;
  const named = (ids, described) => ids.map((id, n) => described[n] ? `${id} (${described[n]})` : id);
  const names = named(data.records, data.descriptions);
  const outputNames = data.outputPlaces ? named(data.outputs, data.outputDescriptions) : names;

  const packed = Uint8Array.from(atob(data.shares), (sign) => sign.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const differences = new Uint8Array(await new Response(stream).arrayBuffer());
  const shares = new Uint8Array(count * width), last = new Uint8Array(width);
  const columns = data.columnOrder || data.rowOrder;
  for (let n = 0; n < count; n++) {
    for (let m = 0; m < width; m++) {
      last[m] += differences[n * width + m];  // modulo 256, as the differences were computed
      shares[data.rowOrder[n] * width + columns[m]] = last[m];
    }
  }
  const share = (row, k) => shares[row * width + k] / data.steps;
  const probability = (row, k) => share(row, k) ** 2 * data.greatest[row];
  const percent = (p) => `${Number((100 * p).toPrecision(p < 0.001 ? 1 : 2))}\u00a0%`;

  // --- the view: the point on the map that is in the middle, and how many times the whole map is enlarged

  const points = outputPlaces.concat(places);
  const half = (axis) => data.cell ? data.cell[axis] / 2 : 0;
  const least = [0, 1].map((axis) => points.reduce((a, p) => Math.min(a, p[axis]), Infinity) - half(axis));
  const most = [0, 1].map((axis) => points.reduce((a, p) => Math.max(a, p[axis]), -Infinity) + half(axis));
  const span = [most[0] - least[0] || 1, most[1] - least[1] || 1];
  const middle = [(least[0] + most[0]) / 2, (least[1] + most[1]) / 2];
  const nearest = 64;  // the largest zoom
  let size, edge, whole, zoom = 1, centre = middle;
  const scale = () => whole * zoom;
  const foot = data.scale ? 34 : 0;  // space below the whole map, so that the scale bar covers no place
  const halfOf = (axis) => (size[axis] - axis * foot) / 2;
  const at = (p) => [halfOf(0) + (p[0] - centre[0]) * scale(), halfOf(1) - (p[1] - centre[1]) * scale()];

  function fit() {
    const full = canvas.clientWidth, dense = Math.min(2, window.devicePixelRatio || 1);
    edge = 12 + 0.034 * full;
    const wanted = (full - 2 * edge) * span[1] / span[0] + 2 * edge + foot;
    size = [full, Math.round(Math.min(Math.max(360, 0.64 * full), Math.max(180, 0.26 * full, wanted)))];
    whole = Math.min((full - 2 * edge) / span[0], (size[1] - 2 * edge - foot) / span[1]);
    canvas.width = full * dense;
    canvas.height = size[1] * dense;
    canvas.style.aspectRatio = `${full} / ${size[1]}`;
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    look(zoom, centre);
  }

  function look(wanted, point) {
    zoom = Math.min(nearest, Math.max(1, wanted));
    centre = point.map((value, axis) => {
      const play = Math.max(0, span[axis] / 2 - (halfOf(axis) - edge) / scale());
      return Math.min(middle[axis] + play, Math.max(middle[axis] - play, value));
    });
    canvas.style.touchAction = zoom > 1 ? "none" : "pan-x pan-y";  // while the whole map is visible, one finger scrolls the page
    draw();
  }

  const move = (x, y) => look(zoom, [centre[0] - x / scale(), centre[1] + y / scale()]);

  function enlarge(times, x = halfOf(0), y = halfOf(1)) {  // the point drawn at x, y stays there
    const away = [(x - halfOf(0)) / scale(), (halfOf(1) - y) / scale()];
    const done = Math.min(nearest, Math.max(1, zoom * times)) / zoom;
    look(zoom * done, centre.map((value, axis) => value + away[axis] * (1 - 1 / done)));
  }

  // --- what is shown about the chosen record: a value from 0 to 1 at each output, or at each record

  let shade, chosen = data.first;

  const scaleTicks = (texts) => find("ticks").replaceChildren(...texts.map((text) => made("span", text)));

  function falls(row) {
    const marked = data.marked ? data.marked[row] : [];
    // Colours follow the square root, so that small probabilities remain visible: the scale has five numbers.
    scaleTicks([0, 0.25, 0.5, 0.75, 1].map((strength) => percent(strength ** 2 * data.greatest[row])));
    find("legend").textContent = "of its reports fall there";
    return { at: outputPlaces, values: Float64Array.from(outputPlaces, (_, k) => share(row, k)), marked };
  }

  // Returns, for each other record, a lower bound on the share of a record's reports that leave the odds between the two
  // within a factor. Probabilities are known to half a step, so each is taken where the two are easier to tell apart.
  function mistaken(row, factor) {
    const sure = 1e-5;  // covers the other numbers' rounding to six figures
    const root = (other) => Math.sqrt(data.prior[other] * data.greatest[other]);
    const own = root(row) * (1 + sure), unit = data.greatest[row] / data.steps ** 2;
    const mine = shares.subarray(row * width, (row + 1) * width);
    return Float64Array.from(rows, (other) => {
      const limit = Math.sqrt(factor) * root(other), its = other * width;
      let within = 0, beyond = 0;
      for (let k = 0; k < width; k++) {
        const step = mine[k];
        if ((step + 0.5) * own <= limit * (shares[its + k] - 0.5)) within += step ? (step - 0.5) ** 2 : 0;
        else beyond += (step + 0.5) ** 2;
      }
      return other === row ? 0 : Math.max(0, within * unit, 1 - beyond * unit) * (1 - sure);
    });
  }

  function update() {
    const shown = falls(chosen), factor = odds && Number(odds.value);
    const shares = odds && mistaken(chosen, factor);
    const alike = odds && rows.filter((other) => shares[other] >= 0.95);
    shade = shown;
    if (odds && layer.value === "mistaken") {
      shade = { at: places, values: shares, marked: alike };
      scaleTicks(["0", "25", "50", "75", "100"]);
      find("legend").textContent = `of 100 of its reports leave the odds within ${factor} to 1; strong rim: at least 95.`;
    }
    shade.order = [...shade.values.keys()].sort((a, b) => shade.values[a] - shade.values[b]);
    tell(alike, factor);
    draw();
  }

  // --- the drawing

  // Half the distance to the nearest neighbour, so that close points do not hide each other.
  const apart = (() => {
    const some = outputPlaces.filter((_, n) => n % Math.ceil(width / 200) === 0);
    const near = some.map((p) => outputPlaces.reduce((a, q) => {
      const d = Math.hypot(p[0] - q[0], p[1] - q[1]);
      return d > 0 && d < a ? d : a;
    }, Infinity)).sort((a, b) => a - b);
    return (near[Math.floor(near.length / 2)] || Infinity) / 2;
  })();

  const part = (colour) => [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
  const mixed = (low, high, value) => `rgb(${low.map((from, n) => Math.round(from + (high[n] - from) * value)).join()})`;

  function outline(place, radius) {
    const [x, y] = at(place), sides = data.cell && data.cell.map((side) => side * scale());
    pen.beginPath();
    if (sides) pen.rect(x - sides[0] / 2, y - sides[1] / 2, ...sides);
    else pen.arc(x, y, radius, 0, 2 * Math.PI);
  }

  function ruler(ink, ground) {
    if (!data.scale) return;
    const wanted = size[0] / scale() / 5, power = 10 ** Math.floor(Math.log10(wanted));
    const length = [5, 2, 1].map((n) => n * power).find((n) => n <= wanted) || power;
    pen.globalAlpha = 0.7;
    pen.fillStyle = ground;
    pen.fillRect(8, size[1] - 34, Math.max(60, length * scale() + 12), 28);
    pen.globalAlpha = 1;
    pen.strokeStyle = pen.fillStyle = ink;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(14, size[1] - 12);
    pen.lineTo(14 + length * scale(), size[1] - 12);
    pen.stroke();
    pen.font = "13px system-ui, sans-serif";
    pen.fillText(`${Number(length.toPrecision(2))} ${data.scale}`, 14, size[1] - 18);
  }

  function draw() {
    if (!shade) return;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const wide = (hex) => hex.length === 4 ? `#${[...hex.slice(1)].map((c) => c + c).join("")}` : hex;
    const low = part(wide(colour("pale"))), high = part(wide(colour("mark")));
    const radius = Math.max(2.5, Math.min(22, edge - 4, 0.92 * apart * scale()));
    pen.clearRect(0, 0, ...size);
    pen.strokeStyle = colour("soft");  // otherwise faint outputs would vanish, above all in dark mode
    pen.lineWidth = 1;
    pen.beginPath();
    for (const [a, b] of streets) { pen.moveTo(...at(streetPlaces[a])); pen.lineTo(...at(streetPlaces[b])); }
    pen.stroke();
    for (const k of shade.order) {
      outline(shade.at[k], radius);
      pen.fillStyle = mixed(low, high, shade.values[k]);
      pen.fill();
      pen.stroke();
    }
    pen.strokeStyle = colour("ink");
    pen.lineWidth = Math.min(2, radius / 2);
    for (const k of shade.marked) { outline(shade.at[k], radius); pen.stroke(); }
    ruler(colour("soft"), colour("paper"));
    pen.lineWidth = 3;
    pen.strokeStyle = colour("bad");
    pen.beginPath();
    pen.arc(...at(places[chosen]), radius + 3, 0, 2 * Math.PI);
    pen.stroke();
  }

  // --- in words

  function tell(alike, factor) {
    const likely = [...outputPlaces.keys()].sort((a, b) => share(chosen, b) - share(chosen, a)).slice(0, 5);
    const about = data.steps < 255 ? "about " : "";
    const lists = [
      [`From ${names[chosen]}, most likely`, likely.filter((k) => share(chosen, k) > 0)
        .map((k) => `${outputNames[k]}: ${about}${percent(probability(chosen, k))}`)],
      [`Of ${data.records[chosen]}`, Object.entries(data.facts)
        .map(([name, values]) => `${name}: ${values[chosen]}\u00a0${data.unit[name] || ""}`)],
    ];
    if (alike) lists.push([`Mistaken for ${data.records[chosen]}`, confusion(data.records[chosen], alike.length, factor)]);
    find("told").replaceChildren(...lists.map(([head, lines]) => {
      const box = document.createElement("div"), title = document.createElement("p"), items = document.createElement("ul");
      title.append(made("strong", head));
      items.append(...lines.map((line) => made("li", line.trim())));
      box.append(title, items);
      return box;
    }));
  }

  function confusion(id, alike, factor) {
    const others = (number) => `${number.toLocaleString("en")} other ${data.noun}${number === 1 ? "" : "s"}`;
    const lines = [alike
      ? `Measured on this release: in at least 95 of 100 reports, whoever sees the report cannot tell ${id} from ` +
        `${others(alike)} better than at odds of ${factor} to 1, even knowing how common each ${data.noun} is.`
      : `Measured on this release: whoever sees the report and knows how common each ${data.noun} is may tell ${id} ` +
        `from any other at better odds than ${factor} to 1, in more than 5 of 100 reports.`];
    if (data.hidden) {
      const hidden = data.hidden[chosen][data.odds.indexOf(factor)];
      lines.push(hidden
        ? `Proved, whatever is known before: no report changes the odds between ${id} and ` +
          `${others(hidden)} by more than a factor of ${factor}.`
        : `Proved: nothing within a factor of ${factor}; the promise lets a report change the odds between ${id} and ` +
          `every other ${data.noun} by more.`);
    }
    return lines;
  }

  // --- choosing, finding, moving

  const offer = (some) => list.replaceChildren(...some.map((row) => new Option(names[row], row)));

  function choose(row) {
    list.value = String(row);
    if (list.value !== String(row)) {  // the row is not among those that the search found
      find("find").value = find("found").textContent = "";
      offer(rows);
      list.value = String(row);
    }
    chosen = row;
    update();
    if (at(places[row]).some((value, axis) => value < 0 || value > size[axis])) look(zoom, places[row]);
  }

  function search() {
    const wanted = find("find").value.trim().toLowerCase();
    const found = rows.filter((row) => names[row].toLowerCase().includes(wanted));
    const same = found.find((row) => data.records[row].toLowerCase() === wanted);
    find("found").textContent = wanted ? `${found.length.toLocaleString("en")} of ${count.toLocaleString("en")}` : "";
    if (!found.length) return;
    offer(found);
    choose(same ?? (found.includes(chosen) ? chosen : found[0]));
  }

  function step(by) {
    const length = list.options.length;
    choose(Number(list.options[(list.selectedIndex + by + length) % length].value));
  }

  function near(x, y) {
    const away = places.map((place) => { const [px, py] = at(place); return (px - x) ** 2 + (py - y) ** 2; });
    return away.reduce((best, value, row) => value < away[best] ? row : best, 0);
  }

  list.addEventListener("change", () => choose(Number(list.value)));
  find("find").addEventListener("input", search);
  find("before").addEventListener("click", () => step(-1));
  find("after").addEventListener("click", () => step(1));
  for (const box of [layer, odds]) if (box) box.addEventListener("change", update);
  const keys = {
    "+": () => enlarge(2), "=": () => enlarge(2), "-": () => enlarge(0.5), Escape: () => look(1, middle),
    ArrowLeft: () => move(80, 0), ArrowRight: () => move(-80, 0), ArrowUp: () => move(0, 80), ArrowDown: () => move(0, -80),
  };
  for (const [id, key] of [["nearer", "+"], ["farther", "-"], ["whole", "Escape"]]) find(id).addEventListener("click", keys[key]);
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== canvas) return;  // the page scrolls; a touchpad's pinch sets ctrlKey
    event.preventDefault();
    enlarge(2 ** (-event.deltaY * (event.deltaMode ? 20 : 1) / 200), event.offsetX, event.offsetY);
  }, { passive: false });
  const fingers = new Map();
  let dragged = 0;
  canvas.addEventListener("pointerdown", (event) => {
    if (!fingers.size) dragged = 0;
    fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const from = fingers.get(event.pointerId), to = [event.offsetX, event.offsetY];
    if (!from) { canvas.title = names[near(...to)]; return; }
    const [, other] = [...fingers].find(([id]) => id !== event.pointerId) || [];
    const away = (one) => Math.hypot(one[0] - other[0], one[1] - other[1]);
    fingers.set(event.pointerId, to);
    dragged += Math.hypot(to[0] - from[0], to[1] - from[1]);
    if (other) enlarge(away(to) / (away(from) || 1), ...other);
    else move(to[0] - from[0], to[1] - from[1]);
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => fingers.delete(event.pointerId));
  canvas.addEventListener("click", (event) => { if (dragged < 6) choose(near(event.offsetX, event.offsetY)); });
  for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", draw);
  addEventListener("resize", fit);
  offer(rows);
  fit();
  choose(data.first);
  canvas.dataset.ready = "yes";
})();
