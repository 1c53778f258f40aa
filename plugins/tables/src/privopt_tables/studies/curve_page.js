(() => {
  "use strict";
  const find = (id) => document.getElementById(id);
  const data = JSON.parse(find("points").textContent);
  const last = data.values.length - 1;
  const slider = Object.fromEntries(["epsilon", "radius", "factor", "bear"].map((id) => [id, find(id)]));
  // The lines that mark the chosen epsilon in the two figures, one for wide pages and one for telephones.
  const lines = [...document.querySelectorAll('figure svg [id$="-here"]')], start = Number(slider.epsilon.value);

  // Rounds a number to three significant digits. Numbers on which a reader relies are rounded to the safe side. way is
  // Math.ceil, Math.floor or Math.round. The 1e-9 prevents a number with three digits from being rounded up because of a
  // rounding error in doubles.
  const rounded = (value, way) => {
    if (!value || !Number.isFinite(value)) return value;
    const unit = 10 ** (Math.floor(Math.log10(Math.abs(value))) - 2);
    return Number((way(value / unit - (way === Math.ceil) * 1e-9) * unit).toPrecision(3));
  };
  const up = (value) => rounded(value, Math.ceil), down = (value) => rounded(value, Math.floor);
  const near = (value) => rounded(value, Math.round);
  const lost = (loss) => `${up(loss)} ${data.unit}` +
    (data.perKm ? ` (${up(loss * data.perKm.cost)} ${data.perKm.unit})` : "");
  const per = (value) => `${value} per ${data.distanceUnit}`;
  const hundred = (share) => `${Number((100 * share).toPrecision(2))} of 100`;

  // Conversions between a slider's position and its number. The scale is geometric for distances and factors, and linear
  // for losses, which may be 0.
  const geometric = ([low, high]) => ({
    of: (at) => low * (high / low) ** (at / data.steps),
    at: (value) => data.steps * Math.log(value / low) / Math.log(high / low),
  });
  const losses = data.best.filter(Boolean).map((best) => best.loss);
  const [least, most] = [Math.min(...losses), Math.max(...losses)];
  const scale = {
    factor: geometric(data.factors),
    radius: geometric([Math.log(data.factors[0]) / data.values[last], Math.log(data.factors[1]) / data.values[0]]),
    bear: {
      of: (at) => least + (most - least) * at / data.steps,
      at: (loss) => Math.ceil(data.steps * (loss - least) / (most - least || 1)),
    },
  };
  const read = (name) => scale[name].of(Number(slider[name].value));
  const put = (name, value) => { slider[name].value = String(Math.round(scale[name].at(value))); };

  // Returns the index of the largest solved epsilon that is at most the given one, or 0 if there is none. A release that
  // is private at an epsilon is private at every larger one.
  function below(epsilon) {
    return Math.max(0, data.values.findLastIndex((value) => value <= epsilon * (1 + 1e-9)));
  }

  // Returns the sentences about the epsilon with the index place, for a radius in the unit of distances. asked is the
  // epsilon that follows from the sliders for radius and factor, or undefined.
  function sentences(place, radius, asked) {
    const epsilon = data.values[place], best = data.best[place], odds = Math.exp(epsilon * radius);
    const said = [];
    if (asked && asked < data.values[0] * (1 - 1e-9)) {
      said.push(`You asked for epsilon ${per(down(asked))}. The least one solved here, ${data.epsilons[0]}, hides less: ` +
        "run the command again with a lower --epsilon.");
    } else if (asked > epsilon * (1 + 1e-6)) {
      said.push(`You asked for epsilon ${per(down(asked))}: shown is the next one below that was solved, ` +
        `${data.epsilons[place]}, which hides no less.`);
    }
    if (data.odds) {
      said.push(`Two ${data.noun}s ${radius} ${data.distanceUnit} ${data.apart}: one report changes the odds between ` +
        `them by a factor of ${up(odds)} at most. An even guess becomes ${up(100 / (1 + 1 / odds))} to ` +
        `${down(100 / (1 + odds))} at most.`);
    }
    if (!best) return [...said, "No release was found at this epsilon."];
    const bound = best.bound === null ? "" : `, and no mechanism with this promise less than ${down(best.bound)} ${data.unit}`;
    said.push(`It loses ${lost(best.loss)} on average (${best.name})${bound}.`);
    if (best.wrong !== null) {
      const before = data.before[0] === null ? "" : `; without a report in ${hundred(1 - data.before[0])}`;
      said.push(`An attacker who sees one report guesses the ${data.noun} in ${hundred(1 - best.wrong)} cases${before}.`);
    }
    if (best.miss !== null) {
      const before = data.before[1] === null ? "" : `, ${near(data.before[1])} ${data.unit} without a report`;
      said.push(`The attacker's best guess is ${near(best.miss)} ${data.unit} off on average${before}.`);
    }
    return said;
  }

  const made = (name, text) => Object.assign(document.createElement(name), { textContent: text });

  // Shows the epsilon with the index place. moved is the slider that the reader moved; the others are adjusted to it.
  function show(place, moved, asked) {
    slider.epsilon.value = String(place);
    const radius = near(read("radius")), epsilon = data.values[place];
    if (moved !== "factor" && moved !== "radius") put("factor", Math.exp(epsilon * radius));
    if (moved !== "bear" && data.best[place]) put("bear", data.best[place].loss);
    const texts = {
      epsilon: per(data.epsilons[place]),
      radius: `${radius} ${data.distanceUnit}`,
      factor: String(up(asked ? read("factor") : Math.exp(epsilon * radius))),
      bear: losses.length ? lost(read("bear")) : "",
    };
    for (const [name, text] of Object.entries(texts)) {
      find(`${name}-is`).textContent = text;
      slider[name].setAttribute("aria-valuetext", text);
    }
    find("told").replaceChildren(...sentences(place, radius, asked).map((text) => made("p", text)));
    find("at").replaceChildren(...data.rows[place].map((cells) => {
      const row = document.createElement("tr");
      row.append(...cells.map((text, column) => {
        const cell = made(column ? "td" : "th", text);
        cell.dataset.label = data.columns[column];
        return cell;
      }));
      return row;
    }));
    lines.forEach((line, n) => {
      line.setAttribute("transform", `translate(${data.across[n][place] - data.across[n][start]} 0)`);
    });
  }

  // To change odds by at most a factor within a radius, epsilon must be log(factor) / radius.
  function promised(moved) {
    const asked = Math.log(read("factor")) / read("radius");
    show(below(asked), moved, asked);
  }
  slider.epsilon.addEventListener("input", () => show(Number(slider.epsilon.value), "epsilon"));
  slider.radius.addEventListener("input", () => promised("radius"));
  slider.factor.addEventListener("input", () => promised("factor"));
  slider.bear.addEventListener("input", () => {
    // The smallest epsilon whose loss is small enough.
    const bearable = data.best.findIndex((best) => best && best.loss <= read("bear") * (1 + 1e-9));
    show(bearable < 0 ? last : bearable, "bear");
  });
  for (const name of ["radius", "factor"]) slider[name].closest("p").hidden = !data.odds;
  put("radius", Math.log(2) / data.values[start]);  // the initial radius: even odds become at most 67 to 33
  show(start, "epsilon");
})();
