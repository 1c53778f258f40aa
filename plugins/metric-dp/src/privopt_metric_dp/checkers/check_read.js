// Reads the numbers and files that a page contains. If it cannot read something, it throws an Error that says so, which does
// not mean that a claim is false.
"use strict";
const reading = (() => {
  let data; // the page's content

  const readable = (holds, why) => { if (!holds) throw new Error(why); };

  // ---- numbers as they are stored
  function decimal(value) { // converts a decimal to a rational: [numerator, denominator]
    const parts = typeof value !== "object" && /^([+-]?)(\d*)\.?(\d*)(?:[eE]([+-]?\d{1,3}))?$/.exec(value);
    readable(parts && parts[2] + parts[3] !== "", `${String(value).slice(0, 40)} is not a number`);
    const power = parts[3].length - Number(parts[4] || 0), whole = BigInt(parts[2] + parts[3]);
    const signed = parts[1] === "-" ? -whole : whole;
    return power >= 0 ? [signed, 10n ** BigInt(power)] : [signed * 10n ** BigInt(-power), 1n];
  }
  function exactly(x) { // converts a double or an integer to the equal rational
    if (typeof x === "bigint") return [x, 1n];
    readable(Number.isFinite(x), `${x} is not a number`);
    const view = new DataView(new ArrayBuffer(8));
    view.setFloat64(0, x);
    const word = view.getBigUint64(0), power = Number((word >> 52n) & 2047n);
    const part = (word & ((1n << 52n) - 1n)) | (power ? 1n << 52n : 0n), shift = BigInt((power || 1) - 1075);
    const signed = word >> 63n ? -part : part;
    return shift >= 0n ? [signed << shift, 1n] : [signed, 1n << -shift];
  }
  function above(x) { // the next larger double
    const view = new DataView(new ArrayBuffer(8));
    view.setFloat64(0, x || 0);
    view.setBigUint64(0, view.getBigUint64(0) + (x < 0 ? -1n : 1n));
    return view.getFloat64(0);
  }
  const bytes = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  function half(word) { // converts a 16-bit float, given as an integer, to a double
    const sign = word >> 15 ? -1 : 1, power = (word >> 10) & 31, part = word & 1023;
    if (power === 31) return part ? NaN : sign * Infinity;
    return sign * (power ? (part + 1024) * 2 ** (power - 25) : part * 2 ** -24);
  }
  function numbers(raw, type) { // decodes bytes as numbers of a NumPy type, given by name
    const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength), found = [], little = type[0] !== ">";
    const read = {
      f8: (at) => view.getFloat64(at, little), f4: (at) => view.getFloat32(at, little), f2: (at) => half(view.getUint16(at, little)),
      u8: (at) => view.getBigUint64(at, little), u4: (at) => view.getUint32(at, little), u2: (at) => view.getUint16(at, little),
      i8: (at) => view.getBigInt64(at, little), i4: (at) => view.getInt32(at, little), i2: (at) => view.getInt16(at, little),
      u1: (at) => view.getUint8(at), i1: (at) => view.getInt8(at),
    }[type.slice(1)];
    readable(read && "<>|".includes(type[0]), `numbers of type ${type}`);
    for (let at = 0; at < raw.length; at += Number(type[2])) found.push(read(at));
    return found;
  }
  function contents(name) { // the bytes in a file that the problem names
    readable(Object.hasOwn(data.files, name), `${name}: no such file`);
    return bytes(data.files[name]);
  }
  const words = (name) => // a file's text, without a byte order mark
    new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(contents(name)).replace(/^\ufeff/, "");
  function npy(name, rows, columns) { // the rows of the array in a .npy file
    const raw = contents(name), old = raw[6] === 1, view = new DataView(raw.buffer), long = raw.length >= 12;
    readable(long && String.fromCharCode(...raw.slice(1, 6)) === "NUMPY" && raw[6] <= 3, `${name}: not a .npy file`);
    const end = old ? 10 + view.getUint16(8, true) : 12 + view.getUint32(8, true);
    const head = String.fromCharCode(...raw.slice(old ? 10 : 12, Math.min(end, 9999)));
    const [type, turned, sides] = [/'descr': *'([<>|]\w+)'/, /'fortran_order': *(True|False)/, /'shape': *\((\d+), *(\d+)\)/]
      .map((form) => form.exec(head));
    readable(type && turned && sides, `${name}: an array that this page does not read`);
    const flat = numbers(raw.slice(end), type[1]), [high, wide] = sides.slice(1).map(Number);
    readable(flat.length === high * wide && (rows ?? high) === high && (columns ?? wide) === wide, `${name}: an array of the wrong size`);
    readable(flat.every((x) => typeof x !== "bigint" || BigInt(Number(x)) === x), `${name}: a whole number that no double can hold`);
    const at = turned[1] === "True" ? (i, k) => k * high + i : (i, k) => i * wide + k;
    return Array.from({ length: high }, (_, i) => Array.from({ length: wide }, (_, k) => flat[at(i, k)]));
  }
  // JavaScript's trim() removes other characters than the program that read these cells
  const bare = (cell) => cell.replace(/^\p{White_Space}+|\p{White_Space}+$/gu, "");
  function csv(name) { // the columns of a CSV file, by name
    const text = words(name), rows = [[""]];
    let quoted = false;
    for (let at = 0; at < text.length; at++) {
      const sign = text[at], row = rows[rows.length - 1];
      if (quoted && sign === '"' && text[at + 1] === '"') { row[row.length - 1] += '"'; at++; }
      else if (sign === '"' && (quoted || row[row.length - 1] === "")) quoted = !quoted;
      else if (!quoted && sign === ",") row.push("");
      else if (!quoted && sign === "\n") rows.push([""]);
      else if (quoted || sign !== "\r") row[row.length - 1] += sign;
      else readable("\n" === (text[at + 1] ?? "\n"), `${name}: a line that ends in a carriage return alone`);
    }
    const [head, ...lines] = rows.filter((row) => row.length > 1 || row[0] !== "").map((row) => row.map(bare));
    readable(lines.length && lines.every((row) => row.length === head.length), `${name}: rows of different lengths`);
    const once = (title) => head.indexOf(title) === head.lastIndexOf(title); // a repeated column is ambiguous, so it is omitted
    return Object.fromEntries(head.map((title, at) => [title, lines.map((row) => row[at])]).filter(([title]) => once(title)));
  }
  const LINE = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/, LAST = new RegExp(`(?:${LINE.source})$`);
  const BLANK = /^[\p{White_Space}\x1c-\x1f]+|[\p{White_Space}\x1c-\x1f]+$/gu; // lines and spaces as Python defines them
  const lines = (name) => words(name).replace(LAST, "").split(LINE).map((line) => line.replace(BLANK, ""));

  const open = (text) => (data = JSON.parse(text));
  return { open, readable, decimal, exactly, above, numbers, bytes, npy, csv, lines };
})();
