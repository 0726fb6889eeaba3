// Reads openapi.json and lays it out. All text goes in as text, never as markup.
"use strict";

const DEEPEST = 3; // levels of nested objects that get rows of their own

let definitions = {};

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function resolve(schema) {
  return schema.$ref ? definitions[schema.$ref.split("/").pop()] : schema;
}

function alternatives(schema) {
  const found = resolve(schema);
  const choices = found.anyOf ?? found.oneOf;
  return choices ? choices.flatMap(alternatives) : [found];
}

function isObject(schema) {
  return Boolean(schema.properties ?? schema.additionalProperties);
}

// What a value may be, in words.

function range(schema, low, high, unit) {
  const [from, to] = [schema[low], schema[high]];
  if (from !== undefined && to !== undefined) return ` (${from} to ${to}${unit})`;
  if (from !== undefined) return ` (at least ${from}${unit})`;
  return to !== undefined ? ` (at most ${to}${unit})` : "";
}

function wordsOfOne(schema) {
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  switch (schema.type) {
    case "array":
      return `array${range(schema, "minItems", "maxItems", "")} of ${words(schema.items ?? {})}`;
    case "string":
      return `string${range(schema, "minLength", "maxLength", " characters")}`;
    case "integer":
    case "number":
      return `${schema.type}${range(schema, "minimum", "maximum", "")}`;
    case "object":
      return schema.additionalProperties ? "object, keyed by any string" : "object";
    default:
      return schema.type ?? "anything";
  }
}

function words(schema) {
  return [...new Set(alternatives(schema).map(wordsOfOne))].join(" or ");
}

// Tables of fields.

// `marked` is whether required fields are told from others: in an answer, all are there.

function rows(schema, depth, marked) {
  const found = [];
  for (const [name, field] of Object.entries(schema.properties ?? {})) {
    const required = marked && (schema.required ?? []).includes(name);
    found.push(row(name, required, field, depth), ...nested(field, depth, marked));
  }
  return found;
}

function row(name, required, field, depth) {
  const description = field.description ?? (field.$ref ? resolve(field).description : "") ?? "";
  const mark = required ? [" ", element("span", { class: "required" }, "required")] : [];
  return element(
    "tr",
    {},
    element("td", { class: `deep-${depth}` }, element("code", {}, name), ...mark),
    element("td", {}, words(field)),
    element("td", {}, description),
  );
}

function nested(field, depth, marked) {
  if (depth >= DEEPEST) return [];
  return alternatives(field).flatMap((choice) => {
    if (choice.type === "array") return nested(choice.items ?? {}, depth, marked);
    if (choice.properties) return rows(choice, depth + 1, marked);
    if (!choice.additionalProperties) return [];
    return alternatives(choice.additionalProperties)
      .filter(isObject)
      .flatMap((value) => [
        row("any key", false, { ...value, description: value.title }, depth + 1),
        ...(depth + 1 < DEEPEST ? rows(value, depth + 2, marked) : []),
      ]);
  });
}

function table(kind, headings, body) {
  const head = element("tr", {}, ...headings.map((text) => element("th", { scope: "col" }, text)));
  return element("table", { class: kind }, element("thead", {}, head), element("tbody", {}, ...body));
}

function fields(schema, marked) {
  const choices = alternatives(schema);
  return choices.flatMap((choice) => [
    ...(choices.length > 1 ? [element("p", { class: "kind" }, choice.title ?? "")] : []),
    table("fields", ["Field", "Type", ""], rows(choice, 0, marked)),
  ]);
}

// An example of a body, and the command that sends it.

function example(schema) {
  const found = alternatives(schema)[0];
  const given = schema.examples ?? found.examples;
  if (given?.length) return given[0];
  if (found.default !== undefined && found.default !== null) return found.default;
  if (found.const !== undefined) return found.const;
  if (found.enum) return found.enum[0];
  if (found.type === "array") return [example(found.items ?? {})];
  if (found.type === "integer" || found.type === "number") return found.minimum ?? 1;
  if (found.type === "boolean") return true;
  if (!found.properties) return found.type === "object" ? {} : "…";
  const wanted = Object.entries(found.properties).filter(([name]) => found.required?.includes(name));
  return Object.fromEntries(wanted.map(([name, field]) => [name, example(field)]));
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function filled(path, operation) {
  const inPath = (operation.parameters ?? []).filter((parameter) => parameter.in === "path");
  return inPath.reduce(
    (text, { name, example: value }) => text.replace(`{${name}}`, encodeURIComponent(value)),
    path,
  );
}

function command(method, path, operation) {
  const lines = ["curl -sS"];
  if (method !== "get") lines[0] += ` -X ${method.toUpperCase()}`;
  lines[0] += ` ${quoted(new URL(`.${filled(path, operation)}`, document.baseURI).href)}`;
  if (operation.security?.some((scheme) => "bearer" in scheme)) {
    // On standard input: every user of a machine can see what is on a command line.
    lines[0] = `printf 'Authorization: Bearer %s\\n' "$TOKEN" \\\n  | ${lines[0]} -H @-`;
  }
  const body = operation.requestBody?.content["application/json"];
  if (body) {
    lines.push("-H 'Content-Type: application/json'");
    lines.push(`-d ${quoted(JSON.stringify(example(body.schema)))}`);
  }
  return lines.join(" \\\n  ");
}

function snippet(text) {
  const code = element("pre", { tabindex: "0" }, text);
  const button = element("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(code);
    // Pages that came over plain HTTP from another machine have no clipboard.
    const copied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    button.textContent = copied || document.execCommand("copy") ? "Copied" : "Press Ctrl+C";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return element("div", { class: "snippet" }, code, button);
}

// Operations.

function parameters(operation) {
  const body = operation.parameters.map(({ name, in: where, required, description, schema }) => {
    const made = row(name, required, { ...schema, description }, 0);
    made.children[0].after(element("td", {}, where));
    return made;
  });
  return table("parameters", ["Parameter", "In", "Type", ""], body);
}

function access(operation) {
  const schemes = operation.security ?? [];
  if (!schemes.length) return "Open to everyone.";
  const optional = schemes.some((scheme) => !Object.keys(scheme).length);
  return optional ? "Open to some addresses; others need a bearer token." : "Needs a bearer token.";
}

function success([status, answer]) {
  const heading = element("h3", {}, `Answer ${status}`);
  const [[media, { schema }]] = Object.entries(answer.content);
  if (media !== "application/json") return [heading, element("p", {}, media)];
  return [heading, ...fields(schema, false)];
}

function responses(operation) {
  const found = Object.entries(operation.responses);
  const failures = found
    .filter(([status]) => !status.startsWith("2"))
    .map(([status, answer]) =>
      element(
        "tr",
        {},
        element("td", { class: "status" }, status),
        element("td", {}, answer.description),
        element("td", {}, answer.headers?.["Retry-After"] ? "with Retry-After, in seconds" : ""),
      ),
    );
  const made = found.filter(([status]) => status.startsWith("2")).flatMap(success);
  return failures.length
    ? [...made, element("h3", {}, "Failures"), table("failures", ["Status", "Meaning", ""], failures)]
    : made;
}

function article(method, path, operation) {
  const made = element(
    "article",
    { id: operation.operationId },
    element(
      "h2",
      {},
      element("span", { class: `method ${method}` }, method.toUpperCase()),
      element("code", {}, path),
    ),
    element("p", {}, operation.summary ?? ""),
  );
  for (const paragraph of (operation.description ?? "").split("\n\n")) {
    if (paragraph) made.append(element("p", {}, paragraph));
  }
  made.append(element("p", { class: "access" }, access(operation)));
  made.append(snippet(command(method, path, operation)));
  if (operation.parameters) made.append(element("h3", {}, "Parameters"), parameters(operation));
  const body = operation.requestBody?.content["application/json"];
  if (body) made.append(element("h3", {}, "Body"), ...fields(body.schema, true));
  made.append(...responses(operation));
  return made;
}

function entry(method, path, operation) {
  return element(
    "li",
    {},
    element(
      "a",
      { href: `#${operation.operationId}`, title: operation.summary ?? "" },
      element("span", { class: `method ${method}` }, method.toUpperCase()),
      element("code", {}, path),
    ),
  );
}

function show(api) {
  definitions = api.components?.schemas ?? {};
  document.title = api.info.title;
  document.getElementById("title").textContent = `${api.info.title} ${api.info.version}`;
  const all = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => [method, path, operation]),
  );
  document.getElementById("contents").replaceChildren(...all.map((each) => entry(...each)));
  document.getElementById("operations").replaceChildren(...all.map((each) => article(...each)));
  // The place that the address names did not exist when the browser looked for it.
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

fetch("openapi.json")
  .then((response) => {
    if (!response.ok) throw new Error(`openapi.json: ${response.status}`);
    return response.json();
  })
  .then(show)
  .catch((error) => {
    document.getElementById("operations").replaceChildren(element("p", {}, `${error.message}`));
  });
