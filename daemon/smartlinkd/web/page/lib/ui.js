// What components are written with: Preact, htm in place of JSX, hooks and signals.

import htm from "htm";
import { h } from "preact";

export { render } from "preact";
export { useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export { batch, computed, effect, signal, useSignal } from "@preact/signals";

export const html = htm.bind(h);
