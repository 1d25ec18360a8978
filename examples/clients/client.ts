// A client that waits as it is told: client.ts METHOD URL...

/** How often a request is sent at most, and how many seconds it waits at most, in all. */
export interface Patience {
  tries?: number;
  maxWait?: number;
}

const idempotent = ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"];

/**
 * fetch, but a request that is denied (429, or 503 with Retry-After) is sent again after the
 * wait that the answer asks for. If it may not be sent again, or not so late, the denial is
 * returned. A body must be one that can be sent twice: a string, a Blob, not a stream.
 */
export async function patientFetch(
  url: string,
  init: RequestInit = {},
  { tries = 4, maxWait = 60 }: Patience = {},
): Promise<Response> {
  const again = idempotent.includes((init.method ?? "GET").toUpperCase()) && !(init.body instanceof ReadableStream);
  for (let left = maxWait; ; tries--) {
    const res = await fetch(url, init);
    const told = retryAfter(res);
    if (told === undefined || told > left || tries <= 1 || !again) return res;
    await res.body?.cancel();
    const wait = told * (1 + Math.random() / 10); // clients that were denied together come back apart
    left -= wait;
    await sleep(wait, init.signal);
  }
}

/** The seconds that an answer asks to wait; undefined if it asks for none. */
function retryAfter(res: Response): number | undefined {
  const text = res.headers.get("Retry-After");
  if ((res.status !== 429 && res.status !== 503) || text === null) return undefined;
  if (/^\d+$/.test(text)) return Number(text);
  const at = /^[A-Z][a-z]+, .* GMT$/.test(text) ? Date.parse(text) : NaN; // Date.parse alone takes 1.5
  return Number.isNaN(at) ? undefined : Math.max(0, (at - Date.now()) / 1000);
}

function sleep(seconds: number, signal?: AbortSignal | null): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, 1000 * seconds);
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort, { once: true });
  });
}

const [method, ...urls] = process.argv.slice(2);
for (const url of urls) {
  const res = await patientFetch(url, { method });
  console.log(res.status, await res.text());
}
