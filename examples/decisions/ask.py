"""An API in Python, limited by Drossel: python3 ask.py"""

import http.client
import json
import os
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DROSSEL = urllib.parse.urlsplit(os.environ.get("DROSSEL", "http://127.0.0.1:7080")).netloc
DEADLINE = float(os.environ.get("DEADLINE", "25")) / 1000
WITHOUT = {"allowed": True, "status": 200, "headers": {}}  # when Drossel itself does not answer

kept = threading.local()  # a connection for each thread


def decide(question):
    """Asks Drossel, which answers with status 200 whether the request is allowed or denied."""
    try:
        if not hasattr(kept, "connection"):
            kept.connection = http.client.HTTPConnection(DROSSEL, timeout=DEADLINE)
        kept.connection.request("POST", "/v1/decide", json.dumps(question), {"Content-Type": "application/json"})
        response = kept.connection.getresponse()
        answer = json.load(response)
        if response.status == 200:
            return answer
        print("drossel:", answer["detail"], file=sys.stderr)  # a mistake in the question
    except (OSError, http.client.HTTPException, ValueError) as error:
        kept.connection.close()  # the next question connects again
        print("drossel:", error, file=sys.stderr)
    return WITHOUT


class API(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        decision = decide({
            "method": self.command,
            "path": self.path,
            "ip": self.client_address[0],
            "attributes": {"user": self.headers.get("X-User", "")},  # yours: the user of a session that you have checked
        })
        if decision["allowed"]:
            self.answer(201, {**decision["headers"], "Content-Type": "application/json"}, {"ordered": True})
        else:
            self.answer(decision["status"], decision["headers"], decision["body"])

    def answer(self, status, headers, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3000"))), API)
    print("listening on port", server.server_port, flush=True)
    server.serve_forever()
