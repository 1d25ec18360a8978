import type { AddressInfo } from "node:net";
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { drossel } from "@drossel/client/hono";
import { parts, suite, user } from "./suite.js";

suite("Hono", async (options, h) => {
  const app = new Hono();
  app.use(drossel({ ...options, attributes: c => user(c.req.raw) }));
  app.use(async (c, next) => (h.ran.push(c.req.path.slice(1)), next()));
  app.post("/orders", c => c.text("ordered", 201));
  app.post("/login", c => {
    const status = Number(c.req.query("status"));
    if (status === 599) throw new Error("as the test asked");
    return c.body(null, status as 200);
  });
  app.onError((_error, c) => c.body(null, 500));
  app.get("/export", () => new Response(toStream(parts(h))));
  for (const path of ["free", "held", "keyed", "search"]) app.get(`/${path}`, c => c.text(path));
  app.get("/load", c => c.text("loaded"));
  if ("Bun" in globalThis) {
    const server = (globalThis as any).Bun.serve({ port: 0, hostname: "127.0.0.1", idleTimeout: 0, fetch: app.fetch });
    return { url: `http://127.0.0.1:${server.port}`, close: () => server.stop(true) };
  }
  const server = serve({ port: 0, hostname: "127.0.0.1", fetch: app.fetch }) as import("node:http").Server;
  await new Promise(resolve => server.once("listening", resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => (server.closeAllConnections(), server.close()) };
});

function toStream(source: AsyncGenerator<Uint8Array>): ReadableStream<Uint8Array> {
  return new ReadableStream({
    async pull(out) {
      const { done, value } = await source.next();
      if (done) out.close();
      else out.enqueue(value);
    },
  });
}
