// A hook for Fastify, 4 and 5.

import type { FastifyReply, FastifyRequest } from "fastify";
import { adapter, type AdapterOptions, closing, endWith } from "./adapter.js";
import { bodyText } from "./index.js";

/** app.addHook("onRequest", drossel({ url: "unix:/run/drossel/drossel.sock" })) */
export function drossel(options: AdapterOptions<FastifyRequest>) {
  const begin = adapter(options);
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> => {
    const closed = closing(reply.raw);
    const incoming = {
      method: request.method, url: request.originalUrl, host: request.headers.host, ip: request.ip,
      header: (name: string) => request.headers[name.toLowerCase()],
    };
    const { decision, abandoned, end } = await begin(request, incoming, () => closed);
    if (abandoned) return reply.code(499).send();
    reply.headers(decision.headers);
    // Bytes: to text Fastify would add a charset.
    if (!decision.allowed) return reply.code(decision.status).send(Buffer.from(bodyText(decision) ?? ""));
    endWith(closed, reply.raw, end);
    return undefined;
  };
}
