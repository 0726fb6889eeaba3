// The page begins here.

import { html, render } from "./lib/ui.js";
import { keepFocus } from "./lib/focus.js";
import { language } from "./lib/i18n.js";
import { takeShared } from "./views/convert/shared.js";
import { App } from "./app.js";

takeShared();
keepFocus();
document.documentElement.lang = language.value;
render(html`<${App} />`, document.body);
