// A plugin for Elysia.

import { type Context, type Elysia, StatusMap } from "elysia";
import { adapter, type AdapterOptions, watched, watchedBody } from "./adapter.js";
import { bodyText, type Started } from "./index.js";

/**
 * app.use(drossel({ url: "unix:/run/drossel/drossel.sock" })) limits the routes that follow. Extra is what
 * derive and resolve before it have added to the context.
 */
export function drossel<Extra extends object = {}>(options: AdapterOptions<Context & Extra>) {
  const begin = adapter(options);
  const running = new WeakMap<Request, Started>();
  return <App extends Elysia<any, any, any, any, any, any, any>>(app: App): App => {
    app.onBeforeHandle(async c => {
      const { request, server, set } = c;
      const header = (name: string) => request.headers.get(name);
      const incoming = { method: request.method, url: request.url, host: header("host"), ip: server?.requestIP(request)?.address, header };
      const started = await begin(c as unknown as Context & Extra, incoming, () => request.signal);
      const { decision, abandoned } = started;
      if (abandoned) return new Response(null, { status: 499 });
      if (!decision.allowed) return new Response(bodyText(decision), decision);
      Object.assign(set.headers, decision.headers);
      running.set(request, started);
      return undefined;
    });
    app.onAfterHandle(({ request, responseValue, set }) => {
      const started = running.get(request);
      if (!started?.decision.renew_every_ms) return undefined;
      const stream = streamed(responseValue, () => void started.end({ status: statusOf(responseValue, set.status) }));
      if (stream) running.delete(request); // the response is taken for sent when it begins
      return stream;
    });
    app.onAfterResponse(({ request, responseValue, set }) => {
      void running.get(request)?.end({ status: statusOf(responseValue, set.status) });
    });
    return app;
  };
}

function statusOf(value: unknown, status: number | string | undefined): number {
  if (value instanceof Response) return value.status;
  return typeof status === "string" ? StatusMap[status as keyof typeof StatusMap] : (status ?? 200);
}

/** The same stream, which tells when it was sent or given up; undefined if it is none. */
function streamed(value: unknown, ended: () => void): unknown {
  if (value instanceof Response) return value.body ? watched(value, ended) : undefined;
  if (value instanceof ReadableStream) return watchedBody(value, ended);
  const source = value as Partial<AsyncGenerator>;
  if (typeof source?.next !== "function") return undefined;
  const watching = (async function* () {
    try {
      yield* source as AsyncGenerator;
    } finally {
      ended();
    }
  })();
  const give = watching.return.bind(watching);
  watching.return = last => (ended(), give(last)); // what was not begun does not run its finally
  return watching;
}
