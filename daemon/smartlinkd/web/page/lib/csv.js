// CSV files (RFC 4180) that spreadsheets open as text.

const FORMULA = /^[=+\-@\t\r]/;

export function toCsv(rows) {
  return `\ufeff${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

function cell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  // A spreadsheet would run what begins like a formula.
  const safe = typeof value === "string" && FORMULA.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function save(name, text, type = "text/csv") {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
