"""Other websites in the same browser: by their own name for this machine (DNS rebinding), and from another local port.

Nothing of the page may be read or changed by them, and there is never a cookie.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from page_client import enter
from page_cluster import PageCluster

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DOCUMENT = "<!doctype html><title>evil</title><body></body>"

ATTACK = """
async ([target, code, key]) => {
  const found = {};
  const attempt = async (name, work) => {
    try { found[name] = String(await work()); } catch (error) { found[name] = "refused"; }
  };
  const within = (make) => new Promise((resolve, reject) => {
    make(resolve, reject);
    setTimeout(() => reject(new Error("late")), 3000);
  });
  for (const [name, init] of Object.entries({
    "get": {},
    "get with credentials": { credentials: "include" },
    "session": { headers: { Authorization: `Bearer ${key}` } },
    "post": { method: "POST", body: JSON.stringify({ code }), headers: { "Content-Type": "application/json" } },
    "post of text": { method: "POST", body: JSON.stringify({ code }), headers: { "Content-Type": "text/plain" } },
    "delete": { method: "DELETE", headers: { Authorization: `Bearer ${key}` } },
  })) {
    const path = name.startsWith("get") ? "/" : "/page/v1/session";
    await attempt(name, async () => (await fetch(target + path, init)).text());
  }
  await attempt("opaque post", async () =>
    (await fetch(target + "/page/v1/session", { mode: "no-cors", method: "POST", body: JSON.stringify({ code }) })).text());
  await attempt("socket", () => within((resolve, reject) => {
    const socket = new WebSocket(target.replace("http", "ws") + "/page/v1/socket", ["setpoint.page.v1", `key.${key}`]);
    socket.onmessage = (event) => resolve(event.data);
    socket.onclose = reject;
  }));
  const load = (tag, source) => within((resolve, reject) => {
    const element = document.createElement(tag);
    element.onload = () => {
      if (tag !== "iframe") return resolve("loaded");
      try { resolve(element.contentDocument.body.innerHTML); } catch { reject(new Error("not readable")); }
    };
    element.onerror = reject;
    element.src = target + source;
    document.body.append(element);
  });
  await attempt("script", () => load("script", "/manifest.json"));
  await attempt("image", () => load("img", "/icon.svg"));
  await attempt("frame", () => load("iframe", "/"));
  const form = document.createElement("form");
  form.method = "POST";
  form.enctype = "text/plain";
  form.action = target + "/page/v1/session";
  form.target = "form";
  const frame = document.createElement("iframe");
  frame.name = "form";
  document.body.append(form, frame);
  form.submit();
  await attempt("window", () => within((resolve, reject) => {
    const opened = window.open(target + "/");
    setTimeout(() => {
      try { resolve(opened.document.title + opened.localStorage.length); } catch (error) { reject(error); }
      opened?.postMessage({ id: 1, op: "request" }, "*");
      opened?.close();
    }, 1000);
  }));
  return found;
}
"""


class _Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(DOCUMENT.encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Another website on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_another_local_port_reads_and_changes_nothing(cluster: PageCluster, site: str, browser: Browser) -> None:
    link = cluster.new_link()
    key = enter(cluster.new_link())
    visitor = browser.new_page()
    visitor.goto(site)
    found = visitor.evaluate(ATTACK, [cluster.origin, link.partition("#")[2], key])
    assert len(found) == 12 and set(found.values()) == {"refused"}, json.dumps(found, indent=1)
    assert visitor.context.cookies() == []
    assert enter(link), "the code was not used"
    visitor.context.close()


def test_a_rebound_name_reads_and_changes_nothing(cluster: PageCluster, browser: Browser) -> None:
    """For the browser, `evil.test` with the port of the page is one origin, whatever serves it: the document of an
    attacker, and then the page. The server refuses the name."""
    link = cluster.new_link()
    key = enter(cluster.new_link())
    address = f"http://evil.test:{cluster.origin.rpartition(':')[2]}"
    flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--host-resolver-rules=MAP evil.test 127.0.0.1"]
    rebound = browser.browser_type.launch(executable_path=shutil.which("chromium"), args=flags)
    try:
        visitor = rebound.new_page()
        with pytest.raises(Exception, match="ERR_HTTP_RESPONSE_CODE_FAILURE"):
            visitor.goto(f"{address}/")
        visitor.route(f"{address}/attack", lambda route: route.fulfill(body=DOCUMENT, content_type="text/html"))
        visitor.goto(f"{address}/attack")
        found = visitor.evaluate(ATTACK, [address, link.partition("#")[2], key])
        # What is read is empty: the answers have no content, and a window shows the browser's own error.
        read = {name: text for name, text in found.items() if text not in ("refused", "")}
        assert set(read) <= {"frame", "window"} and "Setpoint" not in str(read), read
        assert visitor.context.cookies() == []
    finally:
        rebound.close()
    assert enter(link), "the code was not used"
