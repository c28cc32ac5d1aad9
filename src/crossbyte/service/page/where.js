// Filters as values, and as text of the filter language (docs/filters.md). The text is what the URL and the server
// get; the page reads back what it writes itself, and keeps any other filter whole as "custom".

const KEYWORDS = new Set(["AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "BETWEEN", "IS", "NULL", "TRUE", "FALSE"]);
const PLAIN = /^[\p{L}\p{Nl}\p{No}_][\p{L}\p{N}_]*$/u;
const PART = "(?:[\\p{L}\\p{Nl}\\p{No}_][\\p{L}\\p{N}_]*|`(?:[^`]|``)*`)";
const TOKEN = new RegExp(
  "\\s*(?:(?<number>[+-]?(?:\\d+(?:\\.\\d*)?|\\.\\d+)(?:[eE][+-]?\\d+)?)" +
    "|(?<text>'(?:[^']|'')*')" +
    `|(?<name>${PART}(?:\\.${PART})*)` +
    "|(?<sign><=|>=|=|\\(|\\)|,))",
  "uy",
);

/** One key of a payload, as the filter language spells it. */
function spellKey(key) {
  const plain = PLAIN.test(key) && !KEYWORDS.has(key.toUpperCase());
  return plain ? key : `\`${key.replaceAll("`", "``")}\``;
}

/** The way down to a value as a field. */
export const spellField = (keys) => keys.map(spellKey).join(".");

/** A field for people: without the backquotes that only the language needs. */
export const readableField = (field) =>
  field.replace(/`((?:[^`]|``)*)`/g, (_, key) => key.replaceAll("``", "`")).replaceAll("_", " ");

export function literal(value) {
  if (typeof value === "boolean") return value ? "TRUE" : "FALSE";
  if (typeof value === "number") return String(value);
  return `'${value.replaceAll("'", "''")}'`;
}

function condition(field, choice) {
  if (choice.values) {
    if (choice.values.length === 1) return `${field} = ${literal(choice.values[0])}`;
    return `${field} IN (${choice.values.map(literal).join(", ")})`;
  }
  if (choice.low === null) return `${field} <= ${choice.high}`;
  if (choice.high === null) return `${field} >= ${choice.low}`;
  return `${field} BETWEEN ${choice.low} AND ${choice.high}`;
}

/**
 * Filters are {custom: text, fields: Map(field → {values: […]} | {low, high})}.
 * `without` leaves one field out: its own counts must not depend on itself.
 */
export function toWhere(filters, without = null) {
  const parts = filters.custom ? [`(${filters.custom})`] : [];
  for (const [field, choice] of filters.fields) {
    if (field !== without) parts.push(condition(field, choice));
  }
  if (parts.length === 1 && filters.custom) return filters.custom;
  return parts.join(" AND ");
}

function tokens(text) {
  const found = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.trimEnd().length) {
    const match = TOKEN.exec(text);
    if (!match) throw new SyntaxError("not a filter of this page");
    const [kind, value] = Object.entries(match.groups).find(([, each]) => each !== undefined);
    found.push({ kind, value });
  }
  return found;
}

class Reader {
  constructor(text) {
    this.tokens = tokens(text);
    this.place = 0;
  }

  take(kind, value = null) {
    const token = this.tokens[this.place];
    const right = token && token.kind === kind && (value === null || token.value.toUpperCase() === value);
    if (!right) throw new SyntaxError("not a filter of this page");
    this.place += 1;
    return token.value;
  }

  has(kind, value) {
    const token = this.tokens[this.place];
    return token !== undefined && token.kind === kind && token.value.toUpperCase() === value;
  }

  literal() {
    const token = this.tokens[this.place];
    if (!token) throw new SyntaxError("a value is missing");
    if (token.kind === "number") return Number(this.take("number"));
    if (token.kind === "text") return this.take("text").slice(1, -1).replaceAll("''", "'");
    if (this.has("name", "TRUE") || this.has("name", "FALSE")) return this.take("name").toUpperCase() === "TRUE";
    throw new SyntaxError("not a filter of this page");
  }

  number() {
    return Number(this.take("number"));
  }

  choice() {
    if (this.has("sign", "=")) {
      this.take("sign");
      return { values: [this.literal()] };
    }
    if (this.has("sign", "<=")) {
      this.take("sign");
      return { low: null, high: this.number() };
    }
    if (this.has("sign", ">=")) {
      this.take("sign");
      return { low: this.number(), high: null };
    }
    return this.has("name", "IN") ? this.list() : this.between();
  }

  list() {
    this.take("name", "IN");
    this.take("sign", "(");
    const values = [this.literal()];
    while (this.has("sign", ",")) {
      this.take("sign");
      values.push(this.literal());
    }
    this.take("sign", ")");
    return { values };
  }

  between() {
    this.take("name", "BETWEEN");
    const low = this.number();
    this.take("name", "AND");
    return { low, high: this.number() };
  }

  filters() {
    const fields = new Map();
    for (;;) {
      const field = this.take("name");
      if (KEYWORDS.has(field.toUpperCase()) || fields.has(field)) throw new SyntaxError("not a filter of this page");
      fields.set(field, this.choice());
      if (this.place === this.tokens.length) return { custom: "", fields };
      this.take("name", "AND");
    }
  }
}

/** Read a filter; one that this page would not write is kept as it is. */
export function fromWhere(text) {
  if (!text) return { custom: "", fields: new Map() };
  try {
    return new Reader(text).filters();
  } catch {
    return { custom: text, fields: new Map() };
  }
}
