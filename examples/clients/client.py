"""A client that waits as it is told: client.py METHOD URL..."""

import email.utils
import random
import sys
import time
import urllib.error
import urllib.request

IDEMPOTENT = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"}


def patient_open(request, tries=4, max_wait=60.0, timeout=30.0):
    """urlopen, but a request that is denied (429, or 503 with Retry-After) is sent again after
    the wait that the answer asks for: at most so many tries, and so many seconds of waiting in
    all. If it may not be sent again, or not so late, the denial is raised as HTTPError. A body
    must be bytes, which can be sent twice."""
    again = request.get_method() in IDEMPOTENT and isinstance(request.data, (bytes, type(None)))
    while True:
        try:
            return urllib.request.urlopen(request, timeout=timeout)
        except urllib.error.HTTPError as denial:
            told = retry_after(denial)
            tries -= 1
            if told is None or told > max_wait or tries < 1 or not again:
                raise
            denial.close()
        wait = told * (1 + random.random() / 10)  # clients that were denied together come back apart
        max_wait -= wait
        time.sleep(wait)


def retry_after(response):
    """The seconds that an answer asks to wait; None if it asks for none."""
    text = response.headers.get("Retry-After")
    if response.status not in (429, 503) or text is None:
        return None
    try:
        if text.isascii() and text.isdigit():
            return int(text)
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def main():
    method, *urls = sys.argv[1:]
    for url in urls:
        try:
            with patient_open(urllib.request.Request(url, method=method)) as response:
                print(response.status, response.read().decode())
        except urllib.error.HTTPError as denial:
            print(denial.status, denial.read().decode())


if __name__ == "__main__":
    main()
