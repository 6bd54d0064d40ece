"""What a request to the dashboard is answered with (pure).

The URL that is printed once carries the token. The first answer to it moves the token into a cookie that no script can
read and no other site sends, so that it is not left in the browser's address line and history.
"""

import hmac
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from ...rendezvous.base.frozen import dataclass, field
from ..report.page import digest, document
from ..report.style import STYLE

SCRIPT = """
const main = document.getElementById("main"), told = document.getElementById("told");
const PAUSE = 2000, HIDDEN = 15000, PATIENCE = 10000;
const part = "part?page=" + Math.random().toString(36).slice(2);
let last = Date.now(), before = "";
const keyed = () => [...main.querySelectorAll("details[data-key]")];
const reachable = () => [...main.querySelectorAll("summary, a[href], [data-scroll]")];
const called = each => each.matches("summary") ? "details " + each.parentElement.dataset.key
  : each.dataset.scroll ? "text " + each.dataset.scroll : "link " + each.getAttribute("href");
function focusAgain(name) {
  for (const each of reachable()) {
    if (called(each) !== name) continue;
    each.focus({preventScroll: true});
    if (document.activeElement === each) return;
  }
}
function swap(text) {
  const open = new Set(keyed().filter(each => each.open).map(each => each.dataset.key));
  const had = document.activeElement;
  const focused = had && reachable().includes(had) ? called(had) : null;
  const scrolled = new Map([...main.querySelectorAll("[data-scroll]")].map(
    each => [each.dataset.scroll, [each.scrollLeft, each.scrollTop]]));
  main.innerHTML = text;
  for (const each of keyed()) each.open = open.has(each.dataset.key);
  if (focused) focusAgain(focused);
  for (const each of main.querySelectorAll("[data-scroll]")) {
    const [left, top] = scrolled.get(each.dataset.scroll) ?? [0, 0];
    each.scrollLeft = left; each.scrollTop = top;
  }
}
function reading() {
  const chosen = getSelection();
  return chosen && !chosen.isCollapsed && main.contains(chosen.anchorNode);
}
async function look() {
  try {
    const signal = AbortSignal.timeout(PATIENCE);
    const got = await fetch(part, {cache: "no-store", credentials: "same-origin", signal});
    if (!got.ok) throw new Error(String(got.status));
    const text = await got.text();
    if (text !== before && !reading()) { swap(text); before = text; }
    last = Date.now();
    told.textContent = "";
  } catch {
    const seconds = Math.round((Date.now() - last) / 1000);
    told.textContent = `No answer for ${seconds} s: this node's part in the job has ended, or it cannot be reached. ` +
      "Below is what was known last. Another node's dashboard may answer.";
  }
  setTimeout(look, document.hidden ? HIDDEN : PAUSE);
}
function reveal() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target) for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
}
addEventListener("hashchange", reveal);
setTimeout(look, PAUSE);
"""

POLICY = (
    f"default-src 'none'; style-src '{digest(STYLE)}'; script-src '{digest(SCRIPT)}'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every answer."""

LONGEST = 4_096
"""Characters of a request's path, and of its cookies."""

BUSY = "Too many pages are asked for at once: try again soon."
REFUSED = "Open the URL that the launcher has printed: it carries the token."

MOST_DIGITS = 7
"""Of a rank."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    cookie: str = ""
    authorization: str = ""

    @property
    def is_probe(self) -> bool:
        """It asks whether the agent works, which takes no page."""
        return self.path.partition("?")[0] == "/health"

    @property
    def shows_job(self) -> bool:
        """Its answer shows somebody the job."""
        return self.method == "GET" and self.path.partition("?")[0] in ("/", "/part")


@dataclass(frozen=True, slots=True)
class Response:
    status: HTTPStatus
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Site:
    """The dashboard of one node.

    Attributes:
        token: who knows it may look.
        cookie: the name of the cookie; cookies are shared by all ports of a host, so it names the port.
    """

    token: str = field(repr=False)
    cookie: str

    def answer(
        self,
        request: Request,
        title: str,
        main: Callable[[], str],
        rank: Callable[[int], str],
        healthy: Callable[[], bool],
    ) -> Response:
        """The answer.

        Args:
            main, rank: make what the page, and that of a rank, hold now; asked only where somebody may look.
            healthy: the agent does its work; anybody may know that.
        """
        if request.method not in ("GET", "HEAD"):
            return answer_in_words(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET is answered here.", {"Allow": "GET, HEAD"})
        if len(request.path) > LONGEST or len(request.cookie) > LONGEST:
            return answer_in_words(HTTPStatus.REQUEST_URI_TOO_LONG, "The request is too long.")
        if request.is_probe:
            status, word = (HTTPStatus.OK, "ok") if healthy() else (HTTPStatus.SERVICE_UNAVAILABLE, "no answer")
            return Response(status, f"{word}\n", {"Content-Type": "text/plain; charset=utf-8"})
        parts = urlsplit(request.path)
        given = parse_qs(parts.query).get("token", [])
        if parts.path == "/" and given:
            if not self._is_token(given[0]):
                return answer_in_words(HTTPStatus.FORBIDDEN, REFUSED)
            kept = f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
            return Response(HTTPStatus.SEE_OTHER, "", {"Location": "/", "Set-Cookie": kept})
        if not (self._is_token(self._kept(request.cookie)) or self._is_token(_bearer(request.authorization))):
            return answer_in_words(HTTPStatus.FORBIDDEN, REFUSED)
        match parts.path:
            case "/":
                told = '<p id="told" role="status" class="warn"></p>'
                return Response(HTTPStatus.OK, document(title, "", main(), f"{told}<script>{SCRIPT}</script>"))
            case "/part":
                return Response(HTTPStatus.OK, main())
            case "/rank" if number := _number(parts.query):
                return Response(HTTPStatus.OK, document(title, "", rank(int(number))))
            case _:
                return answer_in_words(HTTPStatus.NOT_FOUND, "There is no such page.")

    def _kept(self, cookies: str) -> str:
        try:
            found = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return ""
        return found.value if found else ""

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self.token.encode())


def _bearer(authorization: str) -> str:
    kind, _, value = authorization.partition(" ")
    return value.strip() if kind.lower() == "bearer" else ""


def _number(query: str) -> str:
    """Of a rank, in digits; empty where there is none."""
    given = parse_qs(query).get("number", [""])[0]
    return given if given.isascii() and given.isdecimal() and len(given) <= MOST_DIGITS else ""


def answer_in_words(status: HTTPStatus, words: str = "", headers: Mapping[str, str] | None = None) -> Response:
    """To what is answered by no page; without words, by what the status is called."""
    return Response(status, document("dashboard", "", f"<p>{words or f'{status.phrase}.'}</p>"), headers or {})
