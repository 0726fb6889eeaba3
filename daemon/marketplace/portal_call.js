// One call of the portal's own interface, from the portal's page and in its session.
//
// → {status, url, mimeType, body}, or {redirected: true}, or {failed: name of the DOMException}
// A redirect is not followed: to the login page, on another host, it could not be read anyway.
async (method, url, body, timeoutMs, maxBody) => {
  const token = document.cookie.split("; ").find((cookie) => cookie.startsWith("csrftoken="));
  const headers = { accept: "application/json", "affiliate-program-type": "1" };
  if (body !== null) {
    headers["content-type"] = "application/json; charset=UTF-8";
    headers["csrf-token"] = token?.slice("csrftoken=".length) ?? "";
  }
  try {
    const response = await fetch(url, {
      method,
      headers,
      body: body ?? undefined,
      credentials: "include",
      redirect: "manual",
      signal: AbortSignal.timeout(timeoutMs),
    });
    if (response.type === "opaqueredirect") return { redirected: true };
    const text = await response.text();
    return {
      status: response.status,
      url: response.url,
      mimeType: response.headers.get("content-type") ?? "",
      body: text.slice(0, maxBody),
    };
  } catch (error) {
    return { failed: error.name };
  }
}
