import { Readable } from "node:stream";
import Fastify from "fastify";
import { drossel } from "@drossel/client/fastify";
import { parts, suite } from "./suite.js";

suite("Fastify", async (options, h) => {
  const app = Fastify({ forceCloseConnections: true });
  app.addHook("onRequest", drossel({ ...options, attributes: request => ({ user: request.headers["x-user"] as string }) }));
  app.addHook("onRequest", async request => void h.ran.push(request.url.slice(1).replace(/\?.*/, "")));
  app.post("/orders", (_request, reply) => reply.code(201).send("ordered"));
  app.post<{ Querystring: { status: string } }>("/login", (request, reply) => {
    const status = Number(request.query.status);
    if (status === 599) throw new Error("as the test asked");
    return reply.code(status).send();
  });
  app.get("/export", (_request, reply) => reply.send(Readable.from(parts(h))));
  for (const path of ["free", "held", "keyed", "search"]) app.get(`/${path}`, (_request, reply) => reply.send(path));
  app.get("/load", (_request, reply) => reply.send("loaded"));
  return { url: await app.listen({ port: 0, host: "127.0.0.1" }), close: () => app.close() };
});
