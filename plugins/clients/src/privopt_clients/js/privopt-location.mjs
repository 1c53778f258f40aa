// <privopt-location> asks the browser for the position, which stays inside, and gives the app a report and the promise.
//
// Attributes: src and sha256 of mechanism.bin or, for any position on Earth, epsilon with digits or grid; keep, hours,
// km, limit and per for the policy; place="none" to hide the button.
// Events: "report" with detail { report, promise, drawn, left }, "refused" with detail { message, outside }.

import { open, OutsideRegionError } from "./privopt-client.mjs";
import { Policy } from "./privopt-policy.mjs";
import { fromEpsilon } from "./privopt-sphere.mjs";

const STYLE = `
  :host { display: block; color-scheme: light dark; }
  button { font: inherit; font-weight: 600; width: 100%; min-height: 2.75rem; padding: .4rem .6rem; cursor: pointer;
    color: Canvas; background: CanvasText; border: 1px solid CanvasText; border-radius: .25rem; }
  button[disabled] { opacity: .7; cursor: default; }
  button:focus-visible { outline: 3px solid Highlight; outline-offset: 2px; }
  p { margin: .5rem 0; overflow-wrap: anywhere; }
`;

export class PrivoptLocation extends HTMLElement {
  #policy;
  #mechanism;
  #ready;
  #button = document.createElement("button");
  #promise = document.createElement("p");
  #said = document.createElement("p");

  constructor() {
    super();
    const style = document.createElement("style");
    style.textContent = STYLE;
    this.#button.textContent = "Give an approximate location";
    this.#button.disabled = true;
    this.#said.setAttribute("role", "status");
    this.#button.addEventListener("click", () => this.#ask());
    this.attachShadow({ mode: "open" }).append(style, this.#promise, this.#button, this.#said);
  }

  /** Loads the artefact from `src`, or uses `epsilon`. A page that has loaded an artefact itself calls `start`. */
  connectedCallback() {
    this.#button.hidden = this.getAttribute("place") === "none";
    if (this.hasAttribute("epsilon") && !this.#ready) {
      this.#use(this.#makeSphere()).catch((error) => this.#refuse(error));
    } else if (this.hasAttribute("src") && !this.#ready) {
      const asked = fetch(this.getAttribute("src")).then((answer) => answer.arrayBuffer());
      asked.then((bytes) => this.start(bytes)).catch((error) => this.#refuse(error));
    }
  }

  /** Opens an artefact, and returns its client. */
  start(bytes, storage) {
    return this.#use(open(bytes, this.getAttribute("sha256") ?? undefined), storage);
  }

  async #makeSphere() {
    const names = ["digits", "grid"].filter((name) => this.hasAttribute(name));
    const outputs = Object.fromEntries(names.map((name) => [name, this.getAttribute(name)]));
    return fromEpsilon(this.getAttribute("epsilon"), outputs);
  }

  #use(opening, storage) {
    this.#ready = opening.then((mechanism) => {
      const number = (name) => (this.hasAttribute(name) ? Number(this.getAttribute(name)) : undefined);
      const text = (name) => this.getAttribute(name) ?? undefined;
      const numbers = { hours: number("hours"), km: number("km"), limit: number("limit") };
      this.#policy = new Policy(mechanism, { storage, keep: text("keep"), per: text("per"), ...numbers });
      this.#mechanism = mechanism;
      this.#promise.textContent = mechanism.promise;
      this.#button.disabled = mechanism.names[0] !== "lat";
      this.#button.hidden ||= this.#button.disabled; // the browser's position is of no use if records have none
      return mechanism;
    });
    return this.#ready;
  }

  /** Returns the report for an id or a position, as the policy decides, and dispatches an event for the app. */
  async report(input) {
    try {
      await this.#ready;
      const given = await this.#policy.report(input);
      const { id, ...place } = given.report;
      const where = Object.entries(place).map(([name, value]) => `${name} ${value}`).join(", ");
      const fresh = given.drawn ? "A new report" : "The same report as before";
      const told = `${fresh}: ${[id, where].filter(Boolean).join(", ")}.`;
      this.#said.textContent = `${told} ${given.left} more may be drawn in this period.`;
      const detail = { ...given, promise: this.#mechanism.promise };
      this.dispatchEvent(new CustomEvent("report", { detail, bubbles: true, composed: true }));
      return detail;
    } catch (error) {
      this.#refuse(error);
      return undefined;
    }
  }

  #ask() {
    this.#button.disabled = true;
    const again = () => {
      this.#button.disabled = false;
    };
    const position = ({ coords }) => this.report([coords.latitude, coords.longitude]).finally(again);
    const failed = () => {
      this.#refuse(new Error("The browser gave no position: allow it, or choose a place."));
      again();
    };
    if (navigator.geolocation) {
      navigator.geolocation.getCurrentPosition(position, failed, { maximumAge: 0, timeout: 30000 });
    } else {
      failed();
    }
  }

  #refuse(error) {
    const outside = error instanceof OutsideRegionError;
    const message = outside ? "This place is outside the map of this page. No report was made." : error.message;
    this.#said.textContent = message;
    const detail = { message, outside };
    this.dispatchEvent(new CustomEvent("refused", { detail, bubbles: true, composed: true }));
  }
}

customElements.define("privopt-location", PrivoptLocation);
