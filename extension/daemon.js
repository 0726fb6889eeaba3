// Requests to the daemon. Nothing is sent anywhere else.

const DEADLINE_MS = 90_000;

export class DaemonError extends Error {
  /** `status` is the HTTP status, 0 when the daemon cannot be reached. */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Call the daemon with the paired key. Throws DaemonError. */
export async function call({ url, key }, method, path, body) {
  let answer;
  try {
    answer = await fetch(url + path, {
      method,
      headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "omit",
      redirect: "error",
      signal: AbortSignal.timeout(DEADLINE_MS),
    });
  } catch {
    throw new DaemonError(0, "");
  }
  let content = {};
  try {
    content = await answer.json();
  } catch {
    throw new DaemonError(answer.ok ? 0 : answer.status, "");
  }
  if (!answer.ok) throw new DaemonError(answer.status, content.error ?? "");
  return content;
}
