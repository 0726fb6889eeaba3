// One call of the portal's own interface, from the portal's page and in its session.
//
// → {status, url, mimeType, body}, or {failed: name of the DOMException, status (0: unknown)}
// A redirect is not followed: the login page, on another host, could not be read anyway. Its status
// is hidden from scripts, so it is told as a plain 302.
// A page that has gone to a login or a human check calls nothing: it is told as redirected there.
async (method, url, body, timeoutMs, maxBody, signPaths) => {
  const { pathname, href } = location;
  if (signPaths.some((path) => pathname === path || pathname.startsWith(`${path}/`))) {
    return { status: 302, url: href, mimeType: "", body: "" };
  }
  const token = document.cookie.split("; ").find((cookie) => cookie.startsWith("csrftoken="));
  const headers = { accept: "application/json", "affiliate-program-type": "1" };
  if (body !== null) {
    headers["content-type"] = "application/json; charset=UTF-8";
    headers["csrf-token"] = token?.slice("csrftoken=".length) ?? "";
  }
  let response;
  try {
    response = await fetch(url, {
      method,
      headers,
      body: body ?? undefined,
      credentials: "include",
      redirect: "manual",
      signal: AbortSignal.timeout(timeoutMs),
    });
    const redirected = response.type === "opaqueredirect";
    const text = await response.text();
    return {
      status: redirected ? 302 : response.status,
      url: response.url,
      mimeType: response.headers.get("content-type") ?? "",
      body: text.slice(0, maxBody),
    };
  } catch (error) {
    return { failed: error.name, status: response?.status ?? 0 };
  }
}
