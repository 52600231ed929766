#!/usr/bin/python3
"""The application of the guestbook: `GET /` shows the entries, `POST /` adds one, `GET /entries` returns them as JSON.

It keeps no state, and connects to the database for each request: so it does not notice which instance is the primary.
"""

from __future__ import annotations

import html
import json
import os
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

PORT = 8080
MAX_BODY = 10_000
TABLE = "CREATE TABLE IF NOT EXISTS entries (id serial PRIMARY KEY, text text NOT NULL)"
PAGE = """<!doctype html>
<title>Guestbook</title>
<h1>Guestbook</h1>
<form method="post"><input name="text" autofocus><button>Sign</button></form>
<ul>{entries}</ul>
<p>Served by {host}</p>
"""


def connect() -> Any:
    # Here, because the module is not installed where the example is only read and checked.
    import psycopg2  # type: ignore[import-untyped, import-not-found, unused-ignore]

    return psycopg2.connect(
        host=os.environ["DATABASE_HOST"],
        user=os.environ.get("DATABASE_USER", "postgres"),
        password=os.environ["DATABASE_PASSWORD"],
        dbname="postgres",
        connect_timeout=2,
        options="-c statement_timeout=3000",
    )


def query(statement: str, *values: str) -> list[tuple[Any, ...]]:
    """Run a statement in a transaction of its own and return its rows. The first one creates the table."""
    connection = connect()
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT to_regclass('entries') IS NOT NULL")
            if not cursor.fetchone()[0]:
                cursor.execute(TABLE)
            cursor.execute(statement, values)
            return list(cursor.fetchall())
    finally:
        connection.close()


class Guestbook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self.send(200, "ok\n", "text/plain")
            return
        try:
            entries = [str(text) for (text,) in query("SELECT text FROM entries ORDER BY id DESC LIMIT 100")]
        except Exception as error:
            self.send(503, f"The database does not answer: {error}\n", "text/plain")
            return
        if self.path == "/entries":
            self.send(200, json.dumps(entries), "application/json")
        else:
            items = "".join(f"<li>{html.escape(entry)}</li>" for entry in entries)
            self.send(200, PAGE.format(entries=items, host=socket.gethostname()), "text/html; charset=utf-8")

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            self.close_connection = True
            self.send(413, "The entry is too long.\n", "text/plain")
            return
        text = parse_qs(self.rfile.read(length).decode(errors="replace")).get("text", [""])[0].strip()
        if not text:
            self.send(400, "The entry is empty.\n", "text/plain")
            return
        try:
            query("INSERT INTO entries (text) VALUES (%s) RETURNING id", text)
        except Exception as error:
            self.send(503, f"The entry was not stored: {error}\n", "text/plain")
            return
        self.send(303, "", "text/plain", Location="/")

    def send(self, code: int, body: str, media_type: str, **headers: str) -> None:
        data = body.encode()
        self.send_response(code)
        for name, value in {"Content-Type": media_type, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    sys.stderr.write(f"serving on port {PORT}\n")
    ThreadingHTTPServer(("", PORT), Guestbook).serve_forever()
