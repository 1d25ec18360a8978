// Middleware for Hono, on Bun and Node.

import type { Context, Env, MiddlewareHandler } from "hono";
import { adapter, type AdapterOptions, watched } from "./adapter.js";
import { bodyText } from "./index.js";

/** app.use(drossel({ url: "unix:/run/drossel/drossel.sock" })) */
export function drossel<E extends Env = any>(options: AdapterOptions<Context<E>>): MiddlewareHandler<E> {
  const begin = adapter(options);
  return async (c, next) => {
    const incoming = { method: c.req.method, url: c.req.url, host: c.req.header("Host"), ip: peer(c), header: (name: string) => c.req.header(name) };
    const { decision, abandoned, end } = await begin(c, incoming, () => c.req.raw.signal);
    if (abandoned) return c.body(null, 499 as 500);
    if (!decision.allowed) return new Response(bodyText(decision), decision);
    try {
      await next();
    } catch (error) {
      void end();
      throw error;
    }
    for (const [name, value] of Object.entries(decision.headers)) c.header(name, value);
    const ended = () => void end({ status: c.res.status });
    if (decision.renew_every_ms) c.res = watched(c.res, ended);
    else ended();
  };
}

/** The address of who is connected: Bun's server says it, or the socket of Node's. */
function peer(c: Context): string | undefined {
  const server = c.env?.server ?? c.env;
  return server?.requestIP?.(c.req.raw)?.address ?? server?.incoming?.socket?.remoteAddress;
}
