// Google Sheets: a menu "Affiliate" that fills the column right of the selected links.
//
// Extensions > Apps Script: paste this file. Project settings > Script properties: SMARTLINKD_URL (https) and
// SMARTLINKD_KEY (a key of the scope convert). No cell holds the key, so readers of the sheet do not see it.
const PIECE = 15;

function onOpen() {
  SpreadsheetApp.getUi().createMenu("Affiliate").addItem("Convert the selected links", "convertSelection").addToUi();
}

function convertSelection() {
  const range = SpreadsheetApp.getActiveRange();
  const links = range.getValues().map((row) => String(row[0]).trim());
  const results = [];
  for (let start = 0; start < links.length; start += PIECE) {
    results.push(...convertLinks(links.slice(start, start + PIECE)));
  }
  range.offset(0, range.getNumColumns(), links.length, 1).setValues(results.map((text) => [text]));
}

// Returns the short link of each link, or why there is none. An empty cell stays empty.
function convertLinks(links) {
  const wanted = links.filter((link) => link !== "");
  if (wanted.length === 0) {
    return links.map(() => "");
  }
  const properties = PropertiesService.getScriptProperties();
  const response = UrlFetchApp.fetch(`${properties.getProperty("SMARTLINKD_URL")}/api/convert`, {
    method: "post",
    contentType: "application/json",
    headers: { Authorization: `Bearer ${properties.getProperty("SMARTLINKD_KEY")}` },
    payload: JSON.stringify({ links: wanted, subIds: ["sheets"] }),
    muteHttpExceptions: true,
  });
  const body = JSON.parse(response.getContentText());
  if (response.getResponseCode() !== 200) {
    throw new Error(body.error);
  }
  return links.map((link) => {
    if (link === "") {
      return "";
    }
    const entry = body.mapping[link];
    return entry.shortLink ? entry.shortLink : `failCode ${entry.failCode}`;
  });
}
